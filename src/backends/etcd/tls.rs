//! TLS, with certificates from files.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::lock::{LockError, LockErrorKind};

/// How each certificate and key in a file starts.
const PEM: &[u8] = b"-----BEGIN ";

/// How to connect by TLS.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// The file of authorities; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// The files of the client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// The endpoint with what the files contain now.
    pub fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, LockError> {
        let config = ClientTlsConfig::new();
        let config = match &self.authorities {
            Some(file) => config.ca_certificate(Certificate::from_pem(contents(file)?)),
            None => config.with_native_roots(),
        };
        let config = match &self.certificate {
            Some((file, key)) => {
                config.identity(Identity::from_pem(contents(file)?, contents(key)?))
            }
            None => config,
        };
        endpoint.tls_config(config).map_err(|error| {
            let what = "the certificates for etcd cannot be used";
            LockError::with_source(LockErrorKind::Misconfigured, what, error)
        })
    }
}

/// The contents of a file in PEM. One that has nothing in it would verify no server.
fn contents(file: &Path) -> Result<Vec<u8>, LockError> {
    let contents = std::fs::read(file).map_err(|error| {
        let what = format!("{} cannot be read", file.display());
        LockError::with_source(LockErrorKind::Misconfigured, what, error)
    })?;
    match contents.windows(PEM.len()).any(|part| part == PEM) {
        true => Ok(contents),
        false => Err(unusable(format!("{} is not in PEM", file.display()))),
    }
}

pub(super) fn unusable(what: String) -> LockError {
    LockError::new(LockErrorKind::Misconfigured, what)
}
