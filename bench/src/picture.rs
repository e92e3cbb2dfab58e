//! The picture for the README: bars of what a query costs, as SVG text.

use std::fmt::Write;

use crate::report::Run;
use crate::sample::{Load, Sample};
use crate::workload::Workload;

/// Pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 62.0;
const BAR: f64 = 13.0;
const GROUP: f64 = 40.0;

/// Colours of ours, the floor and others: the highest rate dark, saturation light.
fn colours(peer: &str) -> [&'static str; 2] {
    match peer {
        "floor" => ["#6b7280", "#b6bac2"],
        ours if ours.starts_with("dnsweir") => ["#0f766e", "#5bb5ad"],
        _ => ["#9a5b13", "#dcae74"],
    }
}

/// Draws one workload; none if it was not measured.
pub fn draw(run: &Run, workload: Workload) -> Option<String> {
    let all = run.loads(workload);
    let fixed = all.iter().copied().rfind(|load| matches!(load, Load::Rate(_)));
    let saturated = all.contains(&Load::Saturation).then_some(Load::Saturation);
    let loads: Vec<Load> = fixed.into_iter().chain(saturated).collect();
    let peers = run.peers(workload);
    let cost = |peer: &str, load: Load| run.median(peer, workload, load, Sample::cost);
    let costs = peers
        .iter()
        .flat_map(|peer| loads.iter().map(move |load| cost(peer, *load)));
    let most = costs.flatten().fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let height = TOP + GROUP * peers.len() as f64 + 16.0;

    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" fill="#1f2937">
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>
<text x="20" y="26" font-size="15" font-weight="bold">Processor time per answered query, in µs (less is better)</text>
<text x="20" y="46" fill="#4b5563">{}; {}</text>"##,
        escape(workload.title()),
        loads
            .iter()
            .zip(["dark", "light"])
            .map(|(load, shade)| format!("{shade}: {}", load.title()))
            .collect::<Vec<_>>()
            .join(", "),
    );
    for (place, peer) in peers.iter().enumerate() {
        let y = TOP + GROUP * place as f64;
        let _ = writeln!(
            svg,
            r#"<text x="{}" y="{}" text-anchor="end">{}</text>"#,
            LEFT - 10.0,
            y + BAR + 5.0,
            escape(peer),
        );
        for ((line, load), colour) in loads.iter().enumerate().zip(colours(peer)) {
            let Some(cost) = cost(peer, *load) else {
                continue;
            };
            let y = y + (BAR + 2.0) * line as f64;
            let length = cost * scale;
            let _ = writeln!(
                svg,
                r#"<rect x="{LEFT}" y="{y}" width="{length:.1}" height="{BAR}" rx="2" fill="{colour}"/><text x="{:.1}" y="{}" font-size="11">{cost:.1}</text>"#,
                LEFT + length + 6.0,
                y + BAR - 2.5,
            );
        }
    }
    // The floor, as a line to compare with.
    if let Some(floor) = loads.first().and_then(|load| cost("floor", *load)) {
        let x = LEFT + floor * scale;
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{}" x2="{x:.1}" y2="{}" stroke="#6b7280" stroke-dasharray="3 3"/>"##,
            TOP - 4.0,
            height - 12.0,
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;

    #[test]
    fn bars_are_as_long_as_the_costs() {
        let load = Load::Rate(60_000);
        let lines = [
            sample("floor", 0, load, 10),
            sample("unbound", 0, load, 20),
            sample("unbound", 0, Load::Saturation, 15),
        ];
        let text: String = lines
            .iter()
            .map(|sample| format!("{}\n", sample.to_json()))
            .collect();
        let folder = std::env::temp_dir().join(format!("dnsweir-picture-{}", std::process::id()));
        std::fs::write(&folder, text).unwrap();
        let run = Run::read(&folder);
        std::fs::remove_file(&folder).unwrap();
        let run = run.unwrap();
        let svg = draw(&run, Workload::Hot).unwrap();
        for width in ["540.0", "270.0", "405.0"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{width} in {svg}");
        }
        assert_eq!(svg.matches("fill=\"#9a5b13\"").count(), 1);
        assert_eq!(draw(&run, Workload::Zipf), None);
    }
}
