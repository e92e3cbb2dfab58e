//! Answers names differently during maintenance windows.
//!
//! A window is a part of the week. Between two edges of a window, the verdict is the same for all clients, so
//! the host remembers it, but not beyond the next edge. No TTL extends beyond the edge either, so that other
//! caches do not keep the old answer.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, ExtendedError, Filter, FromValue, Invalid, Manifest, NameBuf, NameMap, Node, Query, Rcode,
    ResponseEdit, Setup, Ttl, Value, Verdict,
};

const DAY: u64 = 24 * 60;
const WEEK: u64 = 7 * DAY;

/// The order of days in a week that starts, like the Unix epoch, on a Thursday.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// The maximum time to remember a verdict, so that a clock change has no lasting effect.
const LONGEST: Duration = Duration::from_secs(60);

/// Not ready (RFC 8914 section 4.15).
const NOT_READY: u16 = 14;

/// The filter.
pub struct Maintenance {
    names: NameMap<Vec<Work>>,
    ttl: Duration,
}

/// The answer for a name, and when it applies.
struct Work {
    window: Window,
    addresses: Vec<IpAddr>,
}

/// A window of minutes of the week in UTC. It may end before it begins: then it includes the end of the week.
#[derive(Clone, Copy)]
struct Window {
    begins: u64,
    ends: u64,
}

/// A minute of the week in local time: `"Sat 22:00"`.
struct Moment(u64);

impl FromValue for Moment {
    const EXPECTED: &'static str = "a day and a time";

    fn from_value(value: Value<'_>) -> Result<Moment, String> {
        let parse = |text: &str| {
            let (day, time) = text.split_once(' ')?;
            let (hours, minutes) = time.split_once(':')?;
            let number = |text: &str, end| {
                text.parse()
                    .ok()
                    .filter(|number: &u64| text.len() == 2 && *number < end)
            };
            let day = DAYS.iter().position(|known| *known == day)? as u64;
            Some(Moment(day * DAY + number(hours, 24)? * 60 + number(minutes, 60)?))
        };
        let help = || "a day and a time of 24 hours: \"Sat 22:00\"".to_owned();
        let Value::Text(text) = value else {
            return Err(help());
        };
        parse(text).ok_or_else(help)
    }
}

impl Window {
    fn read(node: Node<'_>) -> Result<Window, Invalid> {
        let (begins, ends) = (node.argument::<Moment>(0), node.argument::<Moment>(1));
        let ahead = node.property::<i64>("utc-offset")?.unwrap_or(0);
        let in_utc = |Moment(minute)| (minute as i64 - ahead % WEEK as i64).rem_euclid(WEEK as i64) as u64;
        let (begins, ends) = (in_utc(begins?), in_utc(ends?));
        if begins == ends {
            let help = "the second moment is the end: \"Sat 22:00\" \"Sun 02:00\"";
            return Err(node.mistake("this window is empty").help(help).report());
        }
        Ok(Window { begins, ends })
    }

    /// Whether the window is open at a time since the Unix epoch.
    fn is_open(self, time: Duration) -> bool {
        let since_it_began = (minute(time) + WEEK - self.begins) % WEEK;
        since_it_began < (self.ends + WEEK - self.begins) % WEEK
    }

    /// The time until the window next opens or closes.
    fn next_edge(self, time: Duration) -> Duration {
        let until = |edge: u64| match (edge + WEEK - minute(time)) % WEEK {
            0 => WEEK,
            minutes => minutes,
        };
        let left = Duration::from_secs(until(self.begins).min(until(self.ends)) * 60);
        left.saturating_sub(Duration::from_millis(time.as_millis() as u64 % 60_000))
    }
}

/// The minute of the week.
fn minute(time: Duration) -> u64 {
    time.as_secs() / 60 % WEEK
}

impl Filter for Maintenance {
    fn configure(setup: Setup<'_>) -> Result<(Maintenance, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::MINUTE).into();
        let mut names: NameMap<Vec<Work>> = NameMap::new();
        for node in config.nodes(&["window"]) {
            let window = Window::read(node);
            for name in node.nodes(&["name"]) {
                let (name, addresses) = (name.argument::<NameBuf>(0), name.optional_arguments::<IpAddr>(1));
                if let (Ok(window), Ok(name), Ok(addresses)) = (&window, name, addresses) {
                    let window = *window;
                    names.entry(name).push(Work { window, addresses });
                }
            }
        }
        let manifest = Manifest::new()
            .queries()
            .at_or_below(names.iter().map(|(name, _)| name));
        Ok((Maintenance { names, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let works = || self.names.suffixes(query.name()).flat_map(|(_, works)| works);
        let edges = works().map(|work| work.window.next_edge(query.time()));
        let left = edges.min().unwrap_or(LONGEST).min(LONGEST);
        let verdict = match works().find(|work| work.window.is_open(query.time())) {
            None => Verdict::pass().edit(ResponseEdit::new().ttl_max(left)),
            Some(work) if work.addresses.is_empty() => Verdict::refuse(Rcode::SERVFAIL)
                .error(ExtendedError::new(NOT_READY).text("under maintenance")),
            Some(work) => Verdict::answer(Answer::of_host(query, &work.addresses, self.ttl.min(left))),
        };
        verdict.remember(left)
    }
}

dnsweir_filter::export!(Maintenance);
