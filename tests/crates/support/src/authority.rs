//! Certificates.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

/// A certificate authority of a test's own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Makes one.
    #[allow(clippy::new_without_default, reason = "no two are the same")]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Its own certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate and its key, as PEM, for `name`: a host's name or address, or a user.
    pub fn issue(&self, name: &str) -> [String; 2] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        [certificate.pem(), key.serialize_pem()]
    }
}
