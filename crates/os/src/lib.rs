//! What the operating system gives, where the standard library stops.
//!
//! [`datagrams`] come and go in batches, [`receiving`] sockets are waited for, [`background`] threads do what blocks, [`confine`] limits child processes, a
//! [`private_folder`] holds files that others must not change, and [`netstat`] says who has a port. [`output`] writes without
//! waiting for a reader, [`log`] writes to it, [`boot_clock`] goes on while the machine sleeps, [`watch`] tells
//! when files change, and [`plain_text`] makes what others say fit to be shown.

pub mod background;
pub mod boot_clock;
pub mod confine;
pub mod datagrams;
pub mod log;
pub mod netstat;
pub mod output;
pub mod plain_text;
pub mod private_folder;
pub mod receiving;
pub mod watch;

use dnsweir_wire::dns;
