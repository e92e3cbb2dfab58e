//! The picture for the README: bars of each server's cost per query, relative to the floor.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::picture::{self, Area, BROWN, GREEN, GREY, INK, NOTE, heading, text};
use crate::report::{FAILED, FLOOR, Run};
use crate::sample::{Load, Sample};
use crate::workload::Workload;

/// In pixels.
const WIDTH: i32 = 760;
const LEFT: i32 = 190;
const RIGHT: i32 = 140;
const TOP: i32 = 84;
const BAR: i32 = 11;
const GROUP: i32 = 30;

/// The data of the picture.
struct Bars<'a> {
    run: &'a Run,
    workload: Workload,
    /// The highest rate, and saturation.
    loads: Vec<Load>,
    /// In the order of the picture.
    peers: Vec<&'static str>,
    /// The width of the floor's bar in pixels.
    scale: f64,
}

/// Draws one workload; `None` if it was not measured, or not with the floor.
pub fn draw(run: &Run, workload: Workload) -> Result<Option<String>, Box<dyn Error>> {
    let Some(bars) = Bars::of(run, workload) else {
        return Ok(None);
    };
    let height = TOP + GROUP * bars.peers.len() as i32 + 14;
    let svg = picture::draw((WIDTH as u32, height as u32), |area| {
        bars.draw_head(area)?;
        for (place, peer) in bars.peers.iter().enumerate() {
            bars.draw_peer(area, peer, TOP + GROUP * place as i32)?;
        }
        let x = LEFT + bars.scale as i32;
        for y in (TOP - 6..height - 12).step_by(6) {
            area.draw(&PathElement::new([(x, y), (x, y + 3)], GREY))?;
        }
        Ok(())
    });
    svg.map(Some)
}

impl<'a> Bars<'a> {
    fn of(run: &'a Run, workload: Workload) -> Option<Bars<'a>> {
        let all = run.loads(workload);
        let fixed = all.iter().copied().rfind(|load| matches!(load, Load::Rate(_)));
        let saturated = all.contains(&Load::Saturation).then_some(Load::Saturation);
        let mut bars = Bars {
            run,
            workload,
            loads: fixed.into_iter().chain(saturated).collect(),
            peers: run.peers(workload),
            scale: 0.0,
        };
        let mut ranked: Vec<(f64, &'static str)> = bars
            .peers
            .iter()
            .filter_map(|peer| Some((rank(peer, bars.ratios(peer).next()?.1), *peer)))
            .collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        bars.peers = ranked.into_iter().map(|(_, peer)| peer).collect();
        let ratios = bars.peers.iter().flat_map(|peer| bars.ratios(peer));
        let most = ratios.map(|(_, ratio)| ratio).fold(0.0, f64::max);
        bars.scale = f64::from(WIDTH - LEFT - RIGHT) / most;
        (most > 0.0).then_some(bars)
    }

    /// Returns a peer's cost per query relative to the floor, for each load where it is known.
    fn ratios(&self, peer: &str) -> impl Iterator<Item = (usize, f64)> {
        let ratio = move |load| self.run.samples.cost_ratio(peer, FLOOR, self.workload, load);
        let all = self.loads.iter().enumerate();
        all.filter_map(move |(line, load)| Some((line, ratio(*load)?)))
    }

    fn draw_head(&self, area: &Area) -> Result<(), Box<dyn Error>> {
        let title = "Processor time per answered query, relative to a loop that sends a fixed reply";
        area.draw_text(title, &heading(15.0), (20, 32))?;
        let note = text(11.0, NOTE, HPos::Left);
        area.draw_text(&self.workload.title(), &note, (20, 49))?;
        for (line, load) in self.loads.iter().enumerate() {
            let x = 20 + 130 * line as i32;
            area.draw(&bar(BROWN, line, (x, 58), 14))?;
            let when = load.title().replace("saturated", "as fast as it answers");
            area.draw_text(&when, &note, (x + 20, 71))?;
        }
        Ok(())
    }

    fn draw_peer(&self, area: &Area, peer: &str, y: i32) -> Result<(), Box<dyn Error>> {
        area.draw_text(
            label(peer),
            &text(12.0, INK, HPos::Right),
            (LEFT - 12, y + BAR + 7),
        )?;
        let colour = match peer {
            floor if is_floor(floor) => GREY,
            ours if is_ours(ours) => GREEN,
            _ => BROWN,
        };
        for (line, ratio) in self.ratios(peer) {
            let y = y + (BAR + 2) * line as i32;
            let length = (ratio * self.scale).round() as i32;
            area.draw(&bar(colour, line, (LEFT, y), length))?;
            let load = self.loads[line];
            let failed = self
                .run
                .median(peer, self.workload, load, |sample| Some(Sample::failed(sample)));
            let failed = failed.filter(|failed| *failed > FAILED);
            let failed = failed.map(|part| format!(", {:.0} % unanswered", (part * 100.0).max(1.0)));
            let value = format!("{ratio:.2}{}", failed.unwrap_or_default());
            area.draw_text(
                &value,
                &text(11.0, INK, HPos::Left),
                (LEFT + length + 6, y + BAR + 2),
            )?;
        }
        Ok(())
    }
}

/// Returns a bar: in full colour for the first load, in half for the second.
fn bar(colour: RGBColor, line: usize, (x, y): (i32, i32), length: i32) -> Rectangle<(i32, i32)> {
    let shade = colour.mix(if line == 0 { 1.0 } else { 0.5 });
    Rectangle::new([(x, y), (x + length, y + BAR)], shade.filled())
}

/// Ranks the floor and our own first, then the others by cost.
fn rank(peer: &str, ratio: f64) -> f64 {
    match peer {
        _ if is_floor(peer) => 0.0,
        _ if is_ours(peer) => 1.0,
        _ => ratio.max(1.0) + 1.0,
    }
}

fn is_floor(peer: &str) -> bool {
    peer.starts_with(FLOOR)
}

fn is_ours(peer: &str) -> bool {
    peer.starts_with("dnsweir")
}

/// Returns a label that needs no knowledge of the benchmark's page.
fn label(peer: &str) -> &str {
    match peer {
        FLOOR => "the loop",
        "floor-epoll" => "the loop, by epoll",
        "floor-forward" => "a loop that forwards",
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
        let svg = draw(&run, Workload::HOT).unwrap().unwrap();
        for width in ["215", "430", "323", "237"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{width} in {svg}");
        }
        assert_eq!(
            svg.matches("opacity=\"1\" fill=\"#9A5B13\"").count(),
            2,
            "unbound's and the legend's"
        );
        assert!(svg.contains("2.00, 2 % unanswered"), "{svg}");
        assert!(svg.find("dnsweir").unwrap() < svg.find("unbound").unwrap());
        assert_eq!(draw(&run, Workload::Zipf).unwrap(), None);
        let without_floor = Run::of(&[sample("unbound", 0, load, 20)]);
        assert_eq!(draw(&without_floor, Workload::HOT).unwrap(), None);
    }
}
