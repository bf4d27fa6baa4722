//! TLS, with certificates from files.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::lock::{LockError, LockErrorKind};
use crate::util::read_limited;

/// How each certificate and key in a file starts.
const PEM: &[u8] = b"-----BEGIN ";

/// The maximum length of a file. The authorities of a system are some 200 KiB.
const MAX_LEN: u64 = 4 * 1024 * 1024;

/// How to connect by TLS.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// The file of authorities; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// The files of the client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Whether what is read from its files can be read again: it cannot from a pipe.
    pub fn is_in_files(&self) -> bool {
        let certificate = self.certificate.iter().flat_map(|(file, key)| [file, key]);
        self.authorities.iter().chain(certificate).all(|file| file.is_file())
    }

    /// Reads the files. It may block.
    pub fn config(&self) -> Result<ClientTlsConfig, LockError> {
        let config = ClientTlsConfig::new();
        let config = match &self.authorities {
            Some(file) => config.ca_certificate(Certificate::from_pem(contents(file)?)),
            None => config.with_native_roots(),
        };
        Ok(match &self.certificate {
            Some((file, key)) => {
                config.identity(Identity::from_pem(contents(file)?, contents(key)?))
            }
            None => config,
        })
    }
}

/// The endpoint, by TLS.
pub(super) fn over_tls(endpoint: Endpoint, config: ClientTlsConfig) -> Result<Endpoint, LockError> {
    endpoint.tls_config(config).map_err(|error| {
        let what = "the certificates for etcd cannot be used";
        LockError::with_source(LockErrorKind::Misconfigured, what, error)
    })
}

/// The contents of a file in PEM. One that has nothing in it would verify no server.
fn contents(file: &Path) -> Result<Vec<u8>, LockError> {
    let contents = read_limited(file, MAX_LEN).map_err(|error| {
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
