//! Measures servers that already run, for example in other network namespaces or behind other devices.
//!
//! The cost of such a server is not only in its process: a kernel thread, or interrupts, process a device's
//! packets. So the caller names all processes that work for a server. Beside their CPU time, the report shows
//! the time for which the server's processor, or all processors, were not idle for any reason.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddrV4;
use std::str::FromStr;

use clap::Args;

use crate::accounting::{Processor, core_idle, machine_idle};
use crate::drive::{Clock, Monotonic, Schedule, Tally, as_fast_as_answered, on_schedule};
use crate::measure::RUN_IN;
use crate::options::Pace;
use crate::process::pin;
use crate::sample::{Load, median};
use crate::udp_client::UdpClient;
use crate::workload::Workload;

/// Sockets that ask one server.
const SOCKETS: usize = 8;

/// A server, and the processes that work for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    name: String,
    address: SocketAddrV4,
    processes: Vec<u32>,
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        let mut parts = text.split('@');
        let (name, address, processes) = (parts.next()?, parts.next()?, parts.next()?);
        let processes = processes.split('+').map(str::parse);
        let place = Place {
            name: name.to_owned(),
            address: address.parse().ok()?,
            processes: processes.collect::<Result<_, _>>().ok()?,
        };
        parts.next().is_none().then_some(place)
    }

    fn used(&self) -> io::Result<u64> {
        let used = self.processes.iter().map(|&id| Processor::of(id));
        used.map(|used| Ok(used?.scheduled)).sum()
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Place, Self::Err> {
        Place::parse(text).ok_or("not NAME@IP:PORT@PID+PID")
    }
}

/// What to ask whom.
#[derive(Args)]
pub struct Settings {
    /// Whom to ask, with the processes that work for each; ratios are to the first
    #[arg(
        long = "servers",
        value_name = "NAME@IP:PORT@PID+PID,…",
        required = true,
        value_delimiter = ','
    )]
    places: Vec<Place>,
    /// What is asked
    #[arg(long, value_name = "NAME", default_value = "hot")]
    workload: Workload,
    /// Queries a second, and `saturation`
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "60000,saturation"
    )]
    loads: Vec<Load>,
    /// Have "not idle" mean all processors, and not the server's alone: for what works on several of them
    #[arg(long)]
    whole_machine: bool,
    #[command(flatten)]
    pace: Pace,
}

impl Settings {
    /// Returns the nanoseconds for which processors have been idle since boot, and how many they are.
    fn idle(&self) -> io::Result<(u64, u64)> {
        match self.whole_machine {
            true => machine_idle(),
            false => Ok((core_idle(self.pace.cores.server)?, 1)),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Microseconds of CPU time per answer: of the processes, and all time that was not idle.
    charged: f64,
    busy: f64,
    /// Answers per second.
    rate: f64,
    /// The share of queries without an answer, or with a wrong one.
    failed: f64,
    /// Latency in microseconds.
    p50: f64,
    p99: f64,
}

/// Measures in rotation, and returns a table of medians.
pub fn run(settings: &Settings) -> io::Result<String> {
    pin(settings.pace.cores.client)?;
    let mut table = String::from(
        "| load | server | CPU µs/query (least–most) | × first | processor not idle, µs/query | q/s | p50 / p99 µs | unanswered |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for load in &settings.loads {
        let mut rounds = Vec::new();
        for round in 0..settings.pace.rounds {
            let mut figures = vec![Figures::default(); settings.places.len()];
            for turn in 0..settings.places.len() {
                let at = (turn + round as usize) % settings.places.len();
                figures[at] = measure(settings, &settings.places[at], *load, round)?;
            }
            rounds.push(figures);
        }
        for (at, place) in settings.places.iter().enumerate() {
            let of = |figure: fn(&Figures) -> f64| {
                median(rounds.iter().map(|round| figure(&round[at]))).unwrap_or(f64::NAN)
            };
            let charged = rounds.iter().map(|round| round[at].charged);
            let _ = writeln!(
                table,
                "| {} | {} | {:.2} ({:.2}–{:.2}) | {:.2} | {:.2} | {:.0} | {:.0} / {:.0} | {:.3} % |",
                load.text(),
                place.name,
                of(|figures| figures.charged),
                charged.clone().fold(f64::INFINITY, f64::min),
                charged.fold(0.0, f64::max),
                median(rounds.iter().map(|round| round[at].charged / round[0].charged)).unwrap_or(f64::NAN),
                of(|figures| figures.busy),
                of(|figures| figures.rate),
                of(|figures| figures.p50),
                of(|figures| figures.p99),
                of(|figures| figures.failed) * 100.0,
            );
        }
    }
    Ok(table)
}

fn measure(settings: &Settings, place: &Place, load: Load, seed: u32) -> io::Result<Figures> {
    let mut client = UdpClient::new(place.address, Vec::new(), SOCKETS)?;
    let mut questions = settings.workload.questions(seed);
    let mut ask = |duration| -> io::Result<Tally> {
        let mut next = || questions.next();
        match load {
            Load::Rate(rate) => {
                let schedule = Schedule::new(rate, settings.pace.burst, duration);
                on_schedule(&mut client, &mut Monotonic, schedule, &mut next)
            }
            Load::Share(_) => Err(io::Error::other(
                "a share of a capacity that nobody measures here",
            )),
            Load::Saturation => {
                as_fast_as_answered(&mut client, &mut Monotonic, duration, u64::MAX, &mut next)
            }
        }
    };
    ask(RUN_IN)?;
    let used = place.used()?;
    let (idle, _) = settings.idle()?;
    let start = Monotonic.now();
    let tally = ask(settings.pace.duration)?;
    let took = Monotonic.now() - start;
    let (later, processors) = settings.idle()?;
    let idle = later.saturating_sub(idle);
    let used = place.used()?.saturating_sub(used);
    let answered = tally.answered.max(1) as f64;
    let latency = |part| tally.latency.value_at_quantile(part) as f64 / 1e3;
    Ok(Figures {
        charged: used as f64 / 1e3 / answered,
        busy: (took * processors).saturating_sub(idle) as f64 / 1e3 / answered,
        // Not `took`, which includes the wait for lost answers.
        rate: tally.answered as f64 / settings.pace.duration.as_secs_f64(),
        failed: (tally.wrong + tally.lost) as f64 / tally.sent.max(1) as f64,
        p50: latency(0.5),
        p99: latency(0.99),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_or_refused() {
        let place = Place::parse("front@192.0.2.1:53@7+8").unwrap();
        assert_eq!(place.name, "front");
        assert_eq!(place.address, "192.0.2.1:53".parse().unwrap());
        assert_eq!(place.processes, [7, 8]);
        for wrong in [
            "front",
            "front@192.0.2.1:53",
            "front@192.0.2.1@7",
            "front@192.0.2.1:53@",
            "front@192.0.2.1:53@7@8",
        ] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
