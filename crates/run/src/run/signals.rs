//! The signals by which whoever runs the process tells it something.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are orders.
pub(super) struct Signals {
    /// To end.
    pub end: End,
    /// To read the configuration again.
    pub hangup: Signal,
}

/// Those that say it is time to end.
pub struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on none ends the process by itself. Within a runtime that handles signals.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> io::Result<Signals> {
        let end = End::new()?;
        let hangup = signal(SignalKind::hangup())?;
        Ok(Signals { end, hangup })
    }
}

impl End {
    /// From here on they do not end the process by themselves. Within a runtime that handles signals.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> io::Result<End> {
        Ok(End {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Resolves when one of them has come.
    pub async fn come(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!("{name}: stopping");
    }
}
