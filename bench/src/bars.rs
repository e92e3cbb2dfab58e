//! The picture for the README: bars of what a query costs each server, by what it costs the floor.

use crate::picture::Picture;
use crate::report::{FAILED, FLOOR, Run};
use crate::sample::{Load, Sample};
use crate::workload::Workload;

/// Pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 140.0;
const TOP: f64 = 84.0;
const BAR: f64 = 11.0;
const GROUP: f64 = 30.0;

/// Draws one workload; none if it was not measured, or without the floor.
pub fn draw(run: &Run, workload: Workload) -> Option<String> {
    let all = run.loads(workload);
    let fixed = all.iter().copied().rfind(|load| matches!(load, Load::Rate(_)));
    let saturated = all.contains(&Load::Saturation).then_some(Load::Saturation);
    let loads: Vec<Load> = fixed.into_iter().chain(saturated).collect();
    let ratio = |peer: &str, load: Load| run.samples.cost_ratio(peer, FLOOR, workload, load);
    // The floor and ours first, the others from the cheapest on.
    let mut peers = run.peers(workload);
    peers.retain(|peer| loads.iter().any(|load| ratio(peer, *load).is_some()));
    let rank = |peer: &str| match peer {
        _ if is_floor(peer) => 0.0,
        _ if is_ours(peer) => 1.0,
        _ => {
            loads
                .iter()
                .find_map(|load| ratio(peer, *load))
                .unwrap_or(f64::MAX)
                .max(1.0)
                + 1.0
        }
    };
    peers.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
    let ratios = peers
        .iter()
        .flat_map(|peer| loads.iter().map(|load| ratio(peer, *load)));
    let most = ratios.flatten().fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let height = TOP + GROUP * peers.len() as f64 + 14.0;

    let mut picture = Picture::new(WIDTH, height);
    let title = "Processor time per answered query, relative to a loop that sends a fixed reply";
    picture.text("title", 20.0, 28.0, title);
    picture.text("note", 20.0, 46.0, workload.title());
    let mut x = 20.0;
    for (load, shade) in loads.iter().zip(["", " pale"]) {
        picture.bar(&format!("other{shade}"), x, 58.0, 14.0, BAR);
        let when = load.title().replace("saturated", "as fast as it answers");
        picture.text("note", x + 20.0, 68.0, when);
        x += 130.0;
    }
    for (place, peer) in peers.iter().enumerate() {
        let y = TOP + GROUP * place as f64;
        picture.text("name", LEFT - 12.0, y + BAR + 4.0, label(peer));
        let colour = match *peer {
            floor if is_floor(floor) => "floor",
            ours if is_ours(ours) => "ours",
            _ => "other",
        };
        for ((line, load), shade) in loads.iter().enumerate().zip(["", " pale"]) {
            let Some(ratio) = ratio(peer, *load) else {
                continue;
            };
            let y = y + (BAR + 2.0) * line as f64;
            let length = ratio * scale;
            picture.bar(&format!("{colour}{shade}"), LEFT, y, length, BAR);
            let failed = run.median(peer, workload, *load, |sample| Some(Sample::failed(sample)));
            let failed = failed.filter(|failed| *failed > FAILED);
            let failed = failed.map(|part| format!(", {:.0} % unanswered", (part * 100.0).max(1.0)));
            let text = format!("{ratio:.2}{}", failed.unwrap_or_default());
            picture.text("value", LEFT + length + 6.0, y + BAR - 1.5, text);
        }
    }
    let x = LEFT + scale;
    picture.line("dash", (x, TOP - 6.0), (x, height - 12.0));
    Some(picture.finish())
}

fn is_floor(peer: &str) -> bool {
    peer.starts_with(FLOOR)
}

fn is_ours(peer: &str) -> bool {
    peer.starts_with("dnsweir")
}

/// What a reader who has not read the benchmark's page understands.
fn label(peer: &str) -> &str {
    match peer {
        FLOOR => "the loop",
        "floor-epoll" => "the loop, by epoll",
        "dnsweir" => "dnsweir, no filter",
        "dnsweir+3" => "dnsweir, 3 filters",
        "dnsweir+3-called" => "3 filters, all called",
        "dnsweir+3-lines" => "3 filters, a line each",
        "unbound-lines" => "unbound, a line each",
        "dnsdist-lines" => "dnsdist, a line each",
        "coredns-lines" => "coredns, a line each",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;

    #[test]
    fn bars_are_as_long_as_the_ratios() {
        let load = Load::Rate(60_000);
        let run = Run::of(&[
            sample("floor", 0, load, 10),
            sample("floor", 0, Load::Saturation, 10),
            sample("unbound", 0, load, 20),
            sample("unbound", 0, Load::Saturation, 15),
            sample("dnsweir", 0, load, 11),
        ]);
        let svg = draw(&run, Workload::HOT).unwrap();
        for width in ["215.0", "430.0", "322.5", "236.5"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{width} in {svg}");
        }
        assert_eq!(
            svg.matches("class=\"other\"").count(),
            2,
            "unbound's and the legend's"
        );
        assert!(svg.contains("2.00, 2 % unanswered"), "{svg}");
        assert!(svg.find("dnsweir").unwrap() < svg.find("unbound").unwrap());
        assert_eq!(draw(&run, Workload::Zipf), None);
        assert_eq!(
            draw(&Run::of(&[sample("unbound", 0, load, 20)]), Workload::HOT),
            None
        );
    }
}
