//! Prints one line per answered query.
//!
//! It hears events only, so it costs the query path nothing: the answer has left before the line is
//! written, and a batch of lines goes out in one piece.

mod class;
mod format;
mod line;

use dnsweir_filter::{Event, Filter, Invalid, Manifest, Setup, Transport};

use format::Format;

/// The filter.
pub struct Log {
    format: Format,
}

impl Filter for Log {
    fn configure(setup: Setup<'_>) -> Result<(Log, Manifest), Invalid> {
        let config = setup.config();
        let format = config.setting_or("format", Format::common());
        let mut manifest = Manifest::new().events().outcomes(class::outcomes(config));
        if format.has_identity() {
            manifest = manifest.identity();
        }
        Ok((Log { format }, manifest))
    }

    fn event(&mut self, event: &Event<'_>) {
        // Prefetches and the like have no client to tell of.
        if event.query().transport() != Transport::Internal {
            self.format.print(event);
        }
    }
}

dnsweir_filter::export!(Log);
