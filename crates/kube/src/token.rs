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
use super::service::asked;

/// The requested lifetime of a token. The API server may choose another one, never less than 10 minutes.
const LASTS: Duration = Duration::from_secs(3600);

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
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            expiration_seconds: i64::try_from(LASTS.as_secs()).ok(),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let no_token = |why: KubeAnswer| KubeError::NoToken {
        namespace: namespace.clone(),
        account: name.clone(),
        why,
    };
    let asked = asked("create", "serviceaccounts/token", namespace);
    let given = cluster.ask(&asked, |client| async {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let as_usual = PostParams::default();
        let given = accounts.create_token_request(name, &as_usual, &wanted);
        match given.await {
            Ok(given) => Ok(Ok(given)),
            // A 401 rejects the user, not the account.
            Err(kube::Error::Api(status)) if status.code != 401 => {
                Ok(Err(no_token(KubeAnswer::of(status.code, &status.reason))))
            }
            Err(error) => Err(error),
        }
    });
    let status = given.await??.status;
    let status = status.ok_or_else(|| {
        no_token(KubeAnswer {
            status: None,
            word: "the answer holds none".to_owned(),
        })
    })?;
    let expires = status.expiration_timestamp.0.into();
    Ok((Zeroizing::new(status.token), expires))
}
