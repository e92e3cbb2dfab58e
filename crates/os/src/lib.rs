//! Operating system services beyond the standard library.
//!
//! [`datagrams`] sends and receives in batches, [`receiving`] waits for sockets, [`background`] runs blocking
//! work on threads, [`confine`] and [`privileges`] restrict processes, a [`private_folder`] holds files that other users must
//! not change, and [`netstat`] says which process has a port. [`output`] writes without waiting for a reader,
//! [`log`] writes to it, [`clock`] reads the clocks, [`watch`] reports changed files, [`data`] is memory that
//! cannot change, [`plain_text`] escapes untrusted text, and [`programs`] starts our programs beside this one.

pub mod background;
pub mod clock;
pub mod confine;
pub mod data;
pub mod datagrams;
pub mod log;
pub mod netstat;
pub mod output;
pub mod plain_text;
pub mod private_folder;
pub mod privileges;
pub mod programs;
pub mod receiving;
mod sock_diag;
pub mod watch;

use dnsweir_wire::dns;
