//! Pictures as SVG, in colours that follow the reader's light or dark theme.

use std::error::Error;
use std::fmt::Write;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The drawing area.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub const INK: RGBColor = RGBColor(0x1f, 0x29, 0x37);
pub const NOTE: RGBColor = RGBColor(0x4b, 0x55, 0x63);
pub const RULE: RGBColor = RGBColor(0xd1, 0xd5, 0xdb);
pub const GREY: RGBColor = RGBColor(0x6b, 0x72, 0x80);
pub const GREEN: RGBColor = RGBColor(0x0f, 0x76, 0x6e);
pub const BROWN: RGBColor = RGBColor(0x9a, 0x5b, 0x13);
pub const VIOLET: RGBColor = RGBColor(0x6d, 0x28, 0xd9);

/// Each colour in a dark theme.
const DARK: [(RGBColor, &str); 8] = [
    (PAPER, "#0d1117"),
    (INK, "#e5e7eb"),
    (NOTE, "#9ca3af"),
    (RULE, "#30363d"),
    (GREY, "#9ca3af"),
    (GREEN, "#2dd4bf"),
    (BROWN, "#d99a4e"),
    (VIOLET, "#a78bfa"),
];

/// Draws a picture of this size, and returns its text.
pub fn draw(
    size: (u32, u32),
    paint: impl FnOnce(&Area) -> Result<(), Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let edge = [(0, 0), (size.0 as i32 - 1, size.1 as i32 - 1)];
    area.draw(&Rectangle::new(edge, PAPER.filled()))?;
    area.draw(&Rectangle::new(edge, RULE))?;
    paint(&area)?;
    area.present()?;
    drop(area);
    // A style sheet takes precedence over colour attributes.
    let mut style = String::from("<style>@media (prefers-color-scheme: dark){\n");
    for (RGBColor(red, green, blue), dark) in DARK {
        let light = format!("#{red:02X}{green:02X}{blue:02X}");
        writeln!(
            style,
            "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}"
        )?;
    }
    Ok(svg.replacen('>', &format!(">\n{style}}}</style>"), 1))
}

/// Returns a text style of this size and colour, aligned by `across` relative to its position.
pub fn text(size: f64, colour: RGBColor, across: HPos) -> TextStyle<'static> {
    TextStyle {
        // Plotters takes a size as that of the tallest letters.
        font: ("system-ui, sans-serif", size * 1.24).into_font(),
        color: colour.to_backend_color(),
        pos: Pos::new(across, VPos::Bottom),
    }
}

/// Returns the [`text`] style of headings.
pub fn heading(size: f64) -> TextStyle<'static> {
    let mut style = text(size, INK, HPos::Left);
    style.font = style.font.style(FontStyle::Bold);
    style
}
