//! The built-in filters, with each option end to end: file, sandbox, pipeline, wire. Their answers are tested
//! in detail next to their source.

mod acl;
mod dns64;
mod hosts;
mod log;
mod minimal;
mod nodecache;
mod rebinding;
mod rewrite;
mod rotation;
mod template;
mod whoami;

use std::net::SocketAddr;

use crate::examples::configuration_in;
use crate::harness::{ONCE, Proxy, Upstream};

/// The configuration in a filter's README, adapted to run here.
#[track_caller]
fn documented(name: &str, upstream: SocketAddr) -> String {
    let module = format!("module \"builtin:{name}\"");
    let file = format!("filters/{name}/README.md");
    configuration_in(&file, upstream, &[], (&module, &module))
}

/// A proxy with a built-in filter above or below the cache. The time limit is generous, because the test
/// machine may be slow.
fn start(filter: &str, config: &str, pipeline: &str, upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "filter \"f\" {{\n    module \"builtin:{filter}\"\n    limits time=\"1s\"\n    config {{\n{config}\n    }}\n}}\n\
         zone \".\" {{\n    {pipeline}\n    forward \"{}\" {{ max-fails 0; {ONCE} }}\n}}\n",
        upstream.address
    ))
}

/// An upstream that knows every name, with a TTL of 300 s.
fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}
