//! The flags of commands that are programs of their own. `dnsweir` parses them, too: it has all help texts.

#![forbid(unsafe_code)]

mod log;
mod top;
mod webhook;

pub use log::{LogFlags, LogFormat, LogLevel};
pub use top::TopFlags;
pub use webhook::{DnsOption, SYSTEM, WebhookFlags};
