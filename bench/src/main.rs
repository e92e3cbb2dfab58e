//! Measures dnsweir beside the peers that are installed. `bench/README.md` explains how, and what the figures
//! mean.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
)]

mod accounting;
mod answering;
mod ask;
mod bars;
mod cluster;
mod curves;
mod datagrams;
mod drive;
mod epoll;
mod forwarding;
mod group;
mod growth;
mod hit;
mod hostile;
mod latency;
mod loss;
mod measure;
mod miss;
mod options;
mod output;
mod peers;
mod pending;
mod picture;
mod process;
mod record;
mod report;
mod rotation;
mod run;
mod sample;
mod scale;
mod share;
mod spread;
mod steer;
mod tcp_client;
mod udp_client;
mod verbs;
mod wire;
mod workload;
mod worst;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures dnsweir and the other servers that are installed.
///
/// bench/README.md explains how, and what the figures mean.
#[derive(Parser)]
#[command(name = "dnsweir-bench")]
struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure all servers in rotation, then report
    Run(run::Settings),
    /// Measure how the cost of a query grows, then report
    #[command(mut_arg("seconds", |seconds| seconds.default_value("1")))]
    Scale(scale::Settings),
    /// Measure what following a Kubernetes cluster costs, beside CoreDNS, then report
    Cluster(cluster::Settings),
    /// Produce reports and pictures again from the raw numbers
    Report {
        /// With raw.jsonl or scale-*.jsonl
        #[arg(long, value_name = "FOLDER", default_value = output::FOLDER)]
        out: PathBuf,
    },
    /// Measure cache hits without sockets, in this process
    Hit(hit::Settings),
    /// Measure cache misses without a listener, in this process
    Miss(miss::Settings),
    /// Measure cache hits of several threads on the same names, in this process
    Share(share::Settings),
    /// Measure what each thing costs that a filter can do, in this process
    Verbs(verbs::Settings),
    /// Parse the most expensive messages of a size, in this process
    Worst(worst::Settings),
    /// Measure what hostile filters cost the zones that do not use them
    Hostile(hostile::Settings),
    /// Measure how evenly the kernel spreads clients over sockets that share a port
    Spread(spread::Settings),
    /// Measure other ways to choose a worker's socket than by hash, and workers that are pinned
    #[command(mut_arg("seconds", |seconds| seconds.default_value("0.15")))]
    #[command(mut_arg("rounds", |rounds| rounds.default_value("100")))]
    Steer(steer::Settings),
    /// Measure servers that are already running
    #[command(mut_arg("seconds", |seconds| seconds.default_value("2")))]
    Ask(ask::Settings),
    /// Measure misses while datagrams to upstreams are lost
    Loss(loss::Settings),
    /// Run the floor: the server with one fixed answer that others are compared with
    Floor(answering::Floor),
    /// Run the floor of misses: a forwarder that does nothing else
    Forward(forwarding::Forwarder),
    /// Run the upstream that the other servers ask
    Upstream(answering::Upstream),
}

fn main() -> ExitCode {
    match run(Bench::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dnsweir-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Run(settings) => {
            run::run(&settings)?;
            output::write_report(&settings.out)?;
        }
        Command::Scale(settings) => {
            scale::run(&settings)?;
            output::write_curves(&settings.out)?;
        }
        Command::Cluster(settings) => {
            cluster::run(&settings)?;
            output::write_cluster(&settings.out)?;
        }
        Command::Report { out } => output::write_all(&out)?,
        Command::Hit(settings) => hit::run(&settings)?,
        Command::Miss(settings) => miss::run(&settings)?,
        Command::Share(settings) => print!("{}", share::run(&settings)?),
        Command::Verbs(settings) => print!("{}", verbs::run(&settings)?),
        Command::Worst(settings) => println!("{}", worst::run(&settings)?),
        Command::Hostile(settings) => print!("{}", hostile::run(&settings)?),
        Command::Spread(settings) => print!("{}", spread::run(&settings)?),
        Command::Steer(settings) => print!("{}", steer::run(&settings)?),
        Command::Ask(settings) => print!("{}", ask::run(&settings)?),
        Command::Loss(settings) => print!("{}", loss::run(&settings)?),
        Command::Floor(floor) => floor.serve()?,
        Command::Forward(forwarder) => forwarder.serve()?,
        Command::Upstream(upstream) => upstream.serve()?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Bench::command().debug_assert();
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let read = |words: &str| Bench::try_parse_from(words.split(' ')).map(|bench| bench.command);
        let Ok(Command::Run(run)) = read("bench run --peers floor,unbound --loads 10,saturation") else {
            panic!("not a run");
        };
        assert_eq!((run.peers.len(), run.loads.len(), run.pace.rounds), (2, 2, 5));
        assert_eq!(run.pace.duration.as_secs(), 4);
        let Ok(Command::Scale(scale)) = read("bench scale --server-core 3") else {
            panic!("not a scale");
        };
        assert_eq!((scale.pace.duration.as_secs(), scale.pace.cores.server), (1, 3));
        for wrong in [
            "run --peer floor",
            "run --peers nobody",
            "run --seconds 0",
            "worst",
            "ask",
        ] {
            assert!(read(&format!("bench {wrong}")).is_err(), "{wrong}");
        }
    }
}
