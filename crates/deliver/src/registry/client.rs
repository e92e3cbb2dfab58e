//! A client of one host, and its errors as text.

use std::time::Duration;

use oci_client::Client;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use serde::{Deserialize, Serialize};

use super::credentials::Credentials;
use crate::plain_text::with_causes;

/// How long connecting may take, and how long a host may be silent.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

/// A registry host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Host {
    /// Its name or address, with a port if it is not the default.
    pub name: String,
    /// Whether to connect without TLS.
    pub plain: bool,
    /// The credentials to present.
    pub credentials: Option<Credentials>,
}

/// How all hosts are reached.
#[derive(Debug, Serialize, Deserialize)]
pub struct Way {
    /// The CA certificates to trust, in PEM; `None` for the system's.
    pub ca: Option<String>,
    /// The proxy to connect through.
    pub proxy: Option<String>,
}

impl Host {
    /// Returns the credentials to present.
    pub fn auth(&self) -> RegistryAuth {
        match &self.credentials {
            Some(known) => RegistryAuth::Basic(known.user.clone(), known.password.clone()),
            None => RegistryAuth::Anonymous,
        }
    }

    /// Creates a client for it.
    ///
    /// # Errors
    /// When the certificates or the proxy are invalid.
    pub fn client(&self, way: &Way) -> Result<Client, String> {
        dnsweir_config::tls::install_provider();
        let certificate = |pem: &String| Certificate {
            encoding: CertificateEncoding::Pem,
            data: pem.clone().into_bytes(),
        };
        let config = ClientConfig {
            protocol: match self.plain {
                true => ClientProtocol::Http,
                false => ClientProtocol::Https,
            },
            tls_certs_only: way.ca.iter().map(certificate).collect(),
            https_proxy: way.proxy.clone(),
            http_proxy: way.proxy.clone(),
            connect_timeout: Some(CONNECT),
            read_timeout: Some(SILENCE),
            platform_resolver: None,
            user_agent: concat!("dnsweir/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        Client::try_from(config).map_err(|error| with_causes(&error))
    }
}

/// Returns whether a registry reports that something does not exist.
pub fn is_missing(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_) => true,
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => envelope.errors.iter().any(|error| {
            matches!(
                error.code,
                OciErrorCode::ManifestUnknown | OciErrorCode::NotFound | OciErrorCode::NameUnknown
            )
        }),
        _ => false,
    }
}
