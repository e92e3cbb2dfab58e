//! Prints one line per answered query.
//!
//! It handles only events, so it costs the query path nothing: the response has been sent before the line is
//! written, and the lines of a batch are printed together.

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
        // The proxy's own queries, such as prefetches, have no client to log.
        if event.query().transport() != Transport::Internal {
            self.format.print(event);
        }
    }
}

dnsweir_filter::export!(Log);
