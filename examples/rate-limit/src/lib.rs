//! Limits how many queries a client may send.
//!
//! Each client has a bucket of tokens that fills at the rate; a query takes one, and finding none is
//! refused or dropped. The proxy's own queries are not counted: they are the proxy's doing.

mod buckets;

use std::time::Duration;

use dnsweir_filter::{
    Filter, FromValue, Invalid, Manifest, Prefix, PrefixLengths, Query, Rcode, Setup, Transport, Value,
    Verdict,
};

use buckets::{Buckets, Rate};

/// Clients with a bucket, unless written.
const CLIENTS: u32 = 10_000;

/// The largest number of them: a table of some 100 MB.
const CLIENTS_MAX: u32 = 1_000_000;

/// The filter.
pub struct RateLimit {
    buckets: Buckets,
    lengths: PrefixLengths,
    except: Vec<Prefix>,
    beyond: Beyond,
}

/// What happens to a query beyond the limit.
#[derive(Clone, Copy)]
enum Beyond {
    Refuse,
    Drop,
}

impl FromValue for Beyond {
    const EXPECTED: &'static str = "what happens to queries beyond the limit";

    fn from_value(value: Value<'_>) -> Result<Beyond, String> {
        match value {
            Value::Text("refuse") => Ok(Beyond::Refuse),
            Value::Text("drop") => Ok(Beyond::Drop),
            _ => Err("\"refuse\" or \"drop\"".to_owned()),
        }
    }
}

/// A whole number of at least 1.
struct Count(u32);

impl FromValue for Count {
    const EXPECTED: &'static str = "a number";

    fn from_value(value: Value<'_>) -> Result<Count, String> {
        match u32::from_value(value) {
            Ok(count) if (1..=CLIENTS_MAX).contains(&count) => Ok(Count(count)),
            _ => Err(format!("a whole number from 1 to {CLIENTS_MAX}")),
        }
    }
}

impl Filter for RateLimit {
    fn configure(setup: Setup<'_>) -> Result<(RateLimit, Manifest), Invalid> {
        let config = setup.config();
        let rate = match config.node("rate")? {
            Some(node) => {
                let (tokens, per) = (node.argument::<Count>(0), node.property::<Duration>("per"));
                let per = per?.unwrap_or(Duration::from_secs(1));
                if per.is_zero() {
                    return Err(node.mistake("`per=` is no time at all").property("per").report());
                }
                Rate {
                    tokens: tokens?.0,
                    per,
                }
            }
            None => {
                let missing = config.mistake("there is no limit");
                return Err(missing.help("such as: rate 20 burst=100").report());
            }
        };
        let burst = config.setting_or("burst", Count(rate.tokens)).0;
        let clients = config.setting_or("clients", Count(CLIENTS)).0;
        let beyond = config.setting_or("beyond", Beyond::Refuse);
        let lengths = config
            .node("prefix")?
            .map_or(Ok(PrefixLengths::WHOLE), PrefixLengths::read)?;
        let mut except = Vec::new();
        for node in config.nodes(&["except"]) {
            except.extend(node.arguments::<Prefix>(0).unwrap_or_default());
        }
        let filter = RateLimit {
            buckets: Buckets::new(rate, burst, clients),
            lengths,
            except,
            beyond,
        };
        Ok((filter, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let client = query.client();
        if query.transport() == Transport::Internal
            || self.except.iter().any(|prefix| prefix.contains(client))
        {
            return Verdict::pass();
        }
        let taken = self.buckets.take(self.lengths.of(client), query.time());
        if taken.evicted {
            dnsweir_filter::count("evicted", 1);
        }
        if taken.granted {
            return Verdict::pass();
        }
        dnsweir_filter::count("limited", 1);
        match self.beyond {
            Beyond::Refuse => Verdict::refuse(Rcode::REFUSED),
            Beyond::Drop => Verdict::drop(),
        }
    }
}

dnsweir_filter::export!(RateLimit);
