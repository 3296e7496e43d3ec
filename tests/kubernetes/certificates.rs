//! The certificates of an API server and of its administrator.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

const DAY: Duration = Duration::from_secs(86_400);

/// Files of certificates and keys, PEM.
pub(crate) struct Certificates {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// `ca.crt`, `apiserver.crt` and `.key`, `admin.crt` and `.key`, and `sa.pub` and `.key` for tokens of ServiceAccounts, in
    /// `dir`.
    pub(crate) fn new(dir: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params("kubernetes-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        write(dir, "ca.crt", &params.self_signed(&key).unwrap().pem());
        let made = Self {
            dir: dir.to_owned(),
            issuer: Issuer::new(params, key),
        };
        let mut server = self::params("kube-apiserver", None);
        server.subject_alt_names = vec![
            SanType::DnsName("localhost".try_into().unwrap()),
            SanType::IpAddress([127, 0, 0, 1].into()),
        ];
        made.issue("apiserver", &server);
        made.client("admin", "admin", "system:masters");
        let tokens = KeyPair::generate().unwrap();
        write(dir, "sa.pub", &tokens.public_key_pem());
        write(dir, "sa.key", &tokens.serialize_pem());
        made
    }

    /// `FILE.crt` and `FILE.key` of the user `name` in `group`.
    pub(crate) fn client(&self, file: &str, name: &str, group: &str) {
        let mut client = params(name, Some(group));
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, &client);
    }

    fn issue(&self, file: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        write(&self.dir, &format!("{file}.crt"), &certificate.pem());
        write(&self.dir, &format!("{file}.key"), &key.serialize_pem());
    }
}

fn params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        let kind = DnType::OrganizationName;
        params.distinguished_name.push(kind, group);
    }
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    params
}

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}
