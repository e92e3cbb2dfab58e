//! SVG text, in colours that follow the reader's light or dark theme.

use std::fmt::{Display, Write};

/// Classes of what is drawn. Texts: `title`, `head`, `note`; `name` ends where it is put, `tick` is centred, `value`
/// begins there. Shapes: `floor`, `ours`, `other` and their `pale` kinds; `rule`; `line0` to `line2`.
const STYLE: &str = "\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#1f2937}
.card{fill:#ffffff;stroke:#d1d5db}
.title{font-size:15px;font-weight:bold}.head{font-weight:bold}
.note,.tick,.value{font-size:11px}.note,.tick{fill:#4b5563}
.name{text-anchor:end}.tick{text-anchor:middle}.left{text-anchor:end}
.rule{stroke:#d1d5db;stroke-width:1}.dash{stroke:#6b7280;stroke-dasharray:3 3}
.floor{fill:#6b7280}.ours{fill:#0f766e}.other{fill:#9a5b13}.pale{fill-opacity:.5}
.line0{stroke:#0f766e}.line1{stroke:#b45309}.line2{stroke:#6d28d9}
path{fill:none;stroke-width:2}circle{stroke-width:2;fill:#ffffff}
@media (prefers-color-scheme: dark){
text{fill:#e5e7eb}.note,.tick{fill:#9ca3af}
.card{fill:#0d1117;stroke:#30363d}circle{fill:#0d1117}
.rule{stroke:#30363d}.dash{stroke:#9ca3af}
.floor{fill:#9ca3af}.ours{fill:#2dd4bf}.other{fill:#d99a4e}
.line0{stroke:#2dd4bf}.line1{stroke:#f59e0b}.line2{stroke:#a78bfa}
}
";

/// A picture that is being drawn. All places and lengths are in pixels.
pub struct Picture(String);

impl Picture {
    /// An empty card.
    pub fn new(width: f64, height: f64) -> Picture {
        Picture(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <style>\n{STYLE}</style>\n\
             <rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
            width - 1.0,
            height - 1.0,
        ))
    }

    /// Puts a text on the line at `y`.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: impl Display) {
        let text = escape(&text.to_string());
        let _ = writeln!(
            self.0,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        );
    }

    /// A bar from its upper left corner.
    pub fn bar(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"/>"
        );
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points, each with a dot.
    pub fn curve(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{path}\"/>");
        for (x, y) in points {
            let _ = writeln!(
                self.0,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>"
            );
        }
    }

    /// The text of the picture.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
