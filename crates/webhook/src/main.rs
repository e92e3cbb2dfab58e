//! The program behind `dnsweir webhook`: the mutating admission webhook that points pods at their node's address.
//!
//! For each pod created in a namespace with a certain label, the API server sends a [`review`] over HTTPS
//! ([`server`]); a pure function ([`injection`]) decides what to change about a [`pod`]. The certificate
//! comes from [`files`] or is its [`own`]. The webhook does not use the proxy's configuration, and of DNS it
//! knows only names. No pod waits longer than the API server's timeout; on failure, it is left unchanged.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a program speaks to the person who called it")]

mod counters;
mod entries;
mod files;
mod injection;
mod options;
mod own;
mod pod;
mod review;
mod served;
mod server;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Display;
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use clap::Parser;
use dnsweir_counts::metrics::Metrics;
use dnsweir_flags::{LogFormat, WebhookFlags};
use dnsweir_listen::Port;
use dnsweir_os::privileges::{self, Needs};
use dnsweir_os::programs::{EX_OSERR, EX_USAGE, started_with};
use dnsweir_os::{log, output};
use dnsweir_run::admin::{self, Reply};
use dnsweir_run::exposition;
use dnsweir_run::run::End;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use tokio::sync::watch;

use files::Clients;
use options::{Certificate, Options};
use own::Own;
use served::Served;
use server::Webhook;

/// The command line after the version. `dnsweir` has checked it, and shows its help.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    flags: WebhookFlags,
}

/// Why it ends: the exit code, and the message.
type Failure = (u8, String);

fn main() -> ExitCode {
    // Before any thread starts, since each has its own capabilities. It may listen on port 443.
    let kept = privileges::keep(Needs::Port).map_err(io::Error::from);
    let ended = started_with().map_err(machine).and_then(|arguments| {
        let words = [OsString::from("dnsweir webhook")].into_iter().chain(arguments);
        run(Args::parse_from(words).flags, kept)
    });
    // What was logged comes first.
    output::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, problem)) => {
            eprintln!("dnsweir: {problem}");
            ExitCode::from(code)
        }
    }
}

/// Serves until it is stopped. `kept` is the result of dropping capabilities.
fn run(flags: WebhookFlags, kept: io::Result<()>) -> Result<(), Failure> {
    let json = matches!(flags.log.log_format, LogFormat::Json);
    log::start(flags.log.log_level.into(), json)
        .map_err(|error| machine(format!("cannot log to standard error: {error}")))?;
    if let Err(error) = kept {
        tracing::warn!(%error, "could not drop unneeded capabilities");
    }
    let options = Options::new(flags).map_err(|problem| (EX_USAGE, problem))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    runtime.block_on(serve(options))
}

fn machine(error: impl Display) -> Failure {
    (EX_OSERR, error.to_string())
}

async fn serve(options: Options) -> Result<(), Failure> {
    let mut end = End::new().map_err(machine)?;
    let webhook = Arc::new(Webhook::new(options.injection, options.dry_run));
    let clients = options.client_ca.map(Clients::read).transpose();
    let clients = clients.map_err(machine)?;
    let required = clients.as_ref().map(|clients| clients.authorities.clone());
    let served = Rc::new(Served::new(Arc::clone(&webhook), required));
    let identity = served.receiver();
    let following: Pin<Box<dyn Future<Output = ()>>> = match clients {
        Some(clients) => Box::pin(clients.follow(Rc::clone(&served))),
        None => Box::pin(pending::<()>()),
    };
    let keeping: Pin<Box<dyn Future<Output = ()>>> = match options.certificate {
        Certificate::Files(files) => Box::pin(files.follow(served).map_err(machine)?),
        Certificate::Own(name) => Box::pin(Own::new(name, served).await.map_err(machine)?.keep()),
    };
    let admin = options.admin.unwrap_or_else(|| everywhere(9253));
    let admin = admin::Listener::bind(admin, Port::Own).map_err(machine)?;
    let (shown, ready) = (Arc::clone(&webhook), identity.clone());
    let _admin = admin.serve(move |path, headers| reply(path, headers, &shown, ready.borrow().is_some()));
    let address = options.listen.unwrap_or_else(|| everywhere(8443));
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|error| machine(format!("cannot listen on {address}: {error}")))?;
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
