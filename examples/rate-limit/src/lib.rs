//! Limits how many queries a client may send.
//!
//! Each client has a token bucket, which refills at the rate. A query takes a token; without one it is
//! refused, dropped, or sent to TCP. The buckets are in a table that all workers share and that survives
//! reloads. The proxy's own queries are not counted.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Filter, FromValue, Invalid, Manifest, Prefix, PrefixLengths, Query, Rcode, ResponseEdit, Setup,
    Table, Transport, Value, Verdict,
};

/// The default number of clients with a bucket.
const CLIENTS: u32 = 10_000;

/// The maximum number of clients: a table of some 200 MB.
const CLIENTS_MAX: u32 = 1_000_000;

/// The size of a bucket's key, an address, in bytes.
const KEY: usize = 16;

/// The filter.
pub struct RateLimit {
    buckets: Table,
    /// Tokens per second.
    rate: f64,
    burst: u32,
    lengths: PrefixLengths,
    except: Vec<Prefix>,
    beyond: Beyond,
}

/// What happens to a query that exceeds the limit.
#[derive(Clone, Copy, PartialEq)]
enum Beyond {
    Refuse,
    Drop,
    Truncate,
}

impl FromValue for Beyond {
    const EXPECTED: &'static str = "what happens to queries beyond the limit";

    fn from_value(value: Value<'_>) -> Result<Beyond, String> {
        value.one_of(&[
            ("refuse", Beyond::Refuse),
            ("drop", Beyond::Drop),
            ("truncate", Beyond::Truncate),
        ])
    }
}

/// An integer of at least 1.
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
        let (tokens, per) = match config.node("rate")? {
            Some(node) => {
                let (tokens, per) = (node.argument::<Count>(0), node.property::<Duration>("per"));
                let per = per?.unwrap_or(Duration::from_secs(1));
                if per.is_zero() {
                    return Err(node
                        .mistake("`per=` must be more than zero")
                        .property("per")
                        .report());
                }
                (tokens?.0, per)
            }
            None => {
                let missing = config.mistake("there is no limit");
                return Err(missing.help("such as: rate 20 burst=100").report());
            }
        };
        let burst = config.setting_or("burst", Count(tokens)).0;
        let clients = config.setting_or("clients", Count(CLIENTS)).0 as usize;
        let beyond = config.setting_or("beyond", Beyond::Refuse);
        let lengths = config
            .node("prefix")?
            .map_or(Ok(PrefixLengths::WHOLE), PrefixLengths::read)?;
        let mut except = Vec::new();
        for node in config.nodes(&["except"]) {
            except.extend(node.arguments::<Prefix>(0).unwrap_or_default());
        }
        let filter = RateLimit {
            buckets: setup.table("clients", (clients * (KEY + Table::OVERHEAD)).max(4096)),
            rate: f64::from(tokens) / per.as_secs_f64(),
            burst,
            lengths,
            except,
            beyond,
        };
        Ok((filter, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let client = query.client();
        let counts = match self.beyond {
            // A client that retries over a connection has proven that its address is not forged.
            Beyond::Truncate => query.transport() == Transport::Udp,
            _ => query.transport() != Transport::Internal,
        };
        if !counts || self.except.iter().any(|prefix| prefix.contains(client)) {
            return Verdict::pass();
        }
        let key = match self.lengths.of(client).address() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        if self.buckets.take(key.octets(), 1, self.rate, self.burst) {
            return Verdict::pass();
        }
        dnsweir_filter::count("limited", 1);
        match self.beyond {
            Beyond::Refuse => Verdict::refuse(Rcode::REFUSED),
            Beyond::Drop => Verdict::drop(),
            Beyond::Truncate => Verdict::answer(Answer::noerror()).edit(ResponseEdit::new().truncated(true)),
        }
    }
}

dnsweir_filter::export!(RateLimit);
