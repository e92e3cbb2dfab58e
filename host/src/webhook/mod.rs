//! `dnsweir webhook`: the mutating admission webhook that points pods at their node's address.
//!
//! For each pod created in a namespace with a certain label, the API server sends a [`review`] over HTTPS
//! ([`server`]); a pure function ([`injection`]) decides what to change about a [`pod`]. The certificate
//! comes from [`files`] or is its [`own`]. The webhook does not use the proxy's configuration, and of DNS it
//! knows only names. No pod waits longer than the API server's timeout; on failure, it is left unchanged.

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

use std::future::pending;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use tokio::sync::watch;

use crate::admin::{self, Reply};
use crate::exposition;
use crate::listen::Port;
use crate::metrics::Metrics;
use crate::run::{End, Stop};
use files::Clients;
pub use files::Files;
pub use injection::{DnsOption, Injection, Resolvers, SYSTEM, is_domain};
use own::Own;
use served::Served;
use server::Webhook;

/// The options from the command line.
#[derive(Debug)]
pub struct Options {
    /// The settings for pods.
    pub injection: Injection,
    /// Whether to log changes instead of making them.
    pub dry_run: bool,
    /// The address to listen on; `None`: port 8443 of all addresses.
    pub listen: Option<SocketAddr>,
    /// The address for health checks and metrics; `None`: port 9253 of all addresses.
    pub admin: Option<SocketAddr>,
    /// Where the certificate comes from.
    pub certificate: Certificate,
    /// File with the authorities of client certificates; `None`: clients need none.
    pub client_ca: Option<PathBuf>,
}

/// The source of the certificate.
#[derive(Debug)]
pub enum Certificate {
    /// From files.
    Files(Files),
    /// Created here, kept in the Secret and set in the MutatingWebhookConfiguration of this name.
    Own(String),
}

/// Serves until it is stopped.
///
/// # Errors
/// When an address or certificate cannot be used.
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
    let clients = options.client_ca.map(Clients::read).transpose();
    let clients = clients.map_err(Stop::Machine)?;
    let required = clients.as_ref().map(|clients| clients.authorities.clone());
    let served = Rc::new(Served::new(Arc::clone(&webhook), required));
    let identity = served.receiver();
    let following: Pin<Box<dyn Future<Output = ()>>> = match clients {
        Some(clients) => Box::pin(clients.follow(Rc::clone(&served))),
        None => Box::pin(pending::<()>()),
    };
    let keeping: Pin<Box<dyn Future<Output = ()>>> = match options.certificate {
        Certificate::Files(files) => Box::pin(files.follow(served).map_err(Stop::Machine)?),
        Certificate::Own(name) => Box::pin(Own::new(name, served).await.map_err(Stop::Machine)?.keep()),
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
        () = following => {}
        _ = &mut serving => {}
    }
    stop.send_replace(true);
    if !serving.is_finished() {
        let _ = serving.await;
    }
    Ok(())
}

/// The wildcard address, of both families if there is IPv6.
fn everywhere(port: u16) -> SocketAddr {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
        Err(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
    }
}

/// The reply for a path of the admin address.
fn reply(path: &str, headers: &HeaderMap, webhook: &Webhook, has_certificate: bool) -> Reply {
    match path {
        "/health" => admin::text(StatusCode::OK, "ok\n".into()),
        "/ready" if has_certificate => admin::text(StatusCode::OK, "ready\n".into()),
        "/ready" => admin::text(
            StatusCode::SERVICE_UNAVAILABLE,
            "there is no certificate yet: the log has the reason\n".into(),
        ),
        "/metrics" => {
            let mut metrics = Metrics::default();
            webhook
                .counters
                .show(webhook.dry_run, webhook.dismissed(), &mut metrics);
            admin::metrics(headers, &[("dnsweir", metrics), exposition::of_process()])
        }
        _ => admin::text(
            StatusCode::NOT_FOUND,
            "there are /health, /ready and /metrics\n".into(),
        ),
    }
}
