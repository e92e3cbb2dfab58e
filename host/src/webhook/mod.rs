//! `dnsweir webhook`: the mutating admission webhook that points pods at their node's address.
//!
//! The API server asks it about each pod that is created in a namespace with a certain label, over HTTPS ([`server`]), by a
//! [`review`]; what becomes of a [`pod`] is a pure function ([`injection`]). Its certificate comes from [`files`] or is its [`own`].
//! It knows nothing of the proxy's configuration and of DNS only what a name is, and no pod waits for it longer than the API server does: what fails here
//! leaves a pod as it was.

mod counters;
mod entries;
mod files;
mod injection;
mod own;
mod pod;
mod review;
mod served;
mod server;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use tokio::sync::watch;

use crate::admin::{self, Reply};
use crate::figures::Figures;
use crate::listen::Port;
use crate::metrics;
use crate::run::{End, Stop};
use crate::tls::Authorities;
pub use files::Files;
pub use injection::{DnsOption, Injection, Resolvers, SYSTEM, is_domain};
use own::Own;
use served::Served;
use server::Webhook;

/// What the command line asks for.
#[derive(Debug)]
pub struct Options {
    /// What becomes of pods.
    pub injection: Injection,
    /// Whether that is only said.
    pub dry_run: bool,
    /// Where to listen; none: port 8443 of all addresses.
    pub listen: Option<SocketAddr>,
    /// Where to show health and metrics; none: port 9253 of all addresses.
    pub admin: Option<SocketAddr>,
    /// Where the certificate comes from.
    pub certificate: Certificate,
    /// A file with the authorities of whoever may ask; none: whoever can connect.
    pub client_ca: Option<PathBuf>,
}

/// Where a certificate comes from.
#[derive(Debug)]
pub enum Certificate {
    /// From files.
    Files(Files),
    /// It is made here, kept in the Secret of this name, and told the MutatingWebhookConfiguration of this name.
    Own(String),
}

/// Serves until it is told to stop.
///
/// # Errors
/// When an address or a certificate cannot be had.
pub fn run(options: Options) -> Result<(), Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    runtime.block_on(serve(options))
}

fn machine(error: impl std::fmt::Display) -> Stop {
    Stop::Machine(error.to_string())
}

async fn serve(options: Options) -> Result<(), Stop> {
    let mut end = End::new().map_err(machine)?;
    let webhook = Arc::new(Webhook::new(options.injection, options.dry_run));
    let clients = options.client_ca.as_deref().map(authorities).transpose();
    let served = Served::new(Arc::clone(&webhook), clients.map_err(Stop::Machine)?);
    let identity = served.receiver();
    let keeping: Pin<Box<dyn Future<Output = ()>>> = match options.certificate {
        Certificate::Files(files) => Box::pin(files.follow(served).map_err(Stop::Machine)?),
        Certificate::Own(name) => Box::pin(Own::new(name, served).map_err(Stop::Machine)?.keep()),
    };
    let admin = options.admin.unwrap_or_else(|| everywhere(9253));
    let admin = admin::Listener::bind(admin, Port::Own).map_err(machine)?;
    let (shown, ready) = (Arc::clone(&webhook), identity.clone());
    let _admin = admin.serve(move |path, headers| reply(path, headers, &shown, ready.borrow().is_some()));
    let address = options.listen.unwrap_or_else(|| everywhere(8443));
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|error| Stop::Machine(format!("cannot listen on {address}: {error}")))?;
    tracing::info!(%address, dry_run = options.dry_run, "waiting for the API server's questions");
    let (stop, stopped) = watch::channel(false);
    let mut serving = tokio::spawn(webhook.serve(listener, identity, stopped));
    tokio::select! {
        () = end.come() => {}
        () = keeping => {}
        _ = &mut serving => {}
    }
    stop.send_replace(true);
    if !serving.is_finished() {
        let _ = serving.await;
    }
    Ok(())
}

/// The authorities in a file.
fn authorities(path: &Path) -> Result<Authorities, String> {
    let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Authorities::from_pem(&pem).map_err(|problem| format!("{} {problem}", path.display()))
}

/// All addresses, of both families where there are both.
fn everywhere(port: u16) -> SocketAddr {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
        Err(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
    }
}

/// What is shown at a path of the admin address.
fn reply(path: &str, headers: &HeaderMap, webhook: &Webhook, has_certificate: bool) -> Reply {
    match path {
        "/health" => admin::text(StatusCode::OK, "ok\n".into()),
        "/ready" if has_certificate => admin::text(StatusCode::OK, "ready\n".into()),
        "/ready" => admin::text(
            StatusCode::SERVICE_UNAVAILABLE,
            "there is no certificate yet: the log has the reason\n".into(),
        ),
        "/metrics" => {
            let mut figures = Figures::default();
            webhook
                .counters
                .show(webhook.dry_run, webhook.dismissed(), &mut figures);
            admin::figures(headers, &[("dnsweir", figures), metrics::of_process()])
        }
        _ => admin::text(
            StatusCode::NOT_FOUND,
            "there are /health, /ready and /metrics\n".into(),
        ),
    }
}
