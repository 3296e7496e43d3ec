//! Tokens of ServiceAccounts (TokenRequest), which a relay presents to Kubernetes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use zeroize::Zeroizing;

use super::answer::KubeAnswer;
use super::cluster::KubeCluster;
use super::error::KubeError;
use super::service::permission;

/// The requested lifetime of a token. The API server may choose another one, never less than 10 minutes.
const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

/// A ServiceAccount for which a user may create tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Requests a new token of `account` for `audience`. Returns it with its expiry.
///
/// # Errors
/// [`KubeError`].
pub async fn request(
    cluster: &Arc<KubeCluster>,
    account: &AccountName,
    audience: &str,
) -> Result<(Zeroizing<String>, SystemTime), KubeError> {
    let AccountName { namespace, name } = account;
    let token_request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            expiration_seconds: i64::try_from(TOKEN_LIFETIME.as_secs()).ok(),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let no_token = |why: KubeAnswer| KubeError::NoToken {
        namespace: namespace.clone(),
        account: name.clone(),
        why,
    };
    let permission = permission("create", "serviceaccounts/token", namespace);
    let issued = cluster.ask(&permission, |client| async {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let as_usual = PostParams::default();
        let issued = accounts.create_token_request(name, &as_usual, &token_request);
        match issued.await {
            Ok(issued) => Ok(Ok(issued)),
            // A 401 rejects the user, not the account.
            Err(kube::Error::Api(status)) if status.code != 401 => {
                Ok(Err(no_token(KubeAnswer::of(status.code, &status.reason))))
            }
            Err(error) => Err(error),
        }
    });
    let status = issued.await??.status;
    let status = status.ok_or_else(|| {
        no_token(KubeAnswer {
            status: None,
            word: "the answer holds none".to_owned(),
        })
    })?;
    let expires = status.expiration_timestamp.0.into();
    Ok((Zeroizing::new(status.token), expires))
}
