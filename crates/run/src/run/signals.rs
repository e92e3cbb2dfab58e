//! The signals that control the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that control the process.
pub(super) struct Signals {
    /// End.
    pub end: End,
    /// Reload the configuration.
    pub hangup: Signal,
}

/// The signals to end.
pub struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on, none ends the process by itself. Must run within a runtime that handles signals.
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
    /// From here on, they do not end the process by themselves. Must run within a runtime that handles
    /// signals.
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
