//! From the raw numbers to reports and pictures.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::growth::DIMENSIONS;
use crate::peers::in_path;
use crate::report::Run;
use crate::{bars, cluster, curves, latency, scale};

/// The default folder of results.
pub const FOLDER: &str = "target/bench";

/// Writes reports for all raw numbers in `out`.
pub fn write_all(out: &Path) -> Result<(), Box<dyn Error>> {
    let scaled = DIMENSIONS
        .into_iter()
        .any(|dimension| scale::raw(out, dimension).is_file());
    if scaled {
        write_curves(out)?;
    }
    let followed = out.join(cluster::RAW).is_file();
    if followed {
        write_cluster(out)?;
    }
    // Without any, report the missing file.
    if !scaled && !followed || out.join("raw.jsonl").is_file() {
        write_report(out)?;
    }
    Ok(())
}

/// Writes the report and pictures of a run.
pub fn write_report(out: &Path) -> Result<(), Box<dyn Error>> {
    let run = Run::read(&out.join("raw.jsonl"))?;
    let markdown = run.markdown();
    fs::write(out.join("report.md"), &markdown)?;
    print!("{markdown}");
    if let Some(svg) = latency::draw(&run)? {
        write_picture(&out.join("latency.svg"), &svg)?;
    }
    for workload in run.workloads() {
        if let Some(svg) = bars::draw(&run, workload)? {
            return write_picture(&out.join("picture.svg"), &svg);
        }
    }
    Ok(())
}

/// Writes the report and picture of all dimensions with raw numbers.
pub fn write_curves(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut runs = Vec::new();
    for dimension in DIMENSIONS {
        let raw = scale::raw(out, dimension);
        if raw.is_file() {
            runs.push((dimension, Run::read(&raw)?));
        }
    }
    let markdown = curves::markdown(&runs);
    fs::write(out.join("scale.md"), &markdown)?;
    print!("{markdown}");
    write_picture(&out.join("scale.svg"), &curves::draw(&runs)?)
}

/// Writes the tables and picture of the followers of a cluster.
pub fn write_cluster(out: &Path) -> Result<(), Box<dyn Error>> {
    let run = Run::read(&out.join(cluster::RAW))?;
    let markdown = cluster::markdown(&run);
    fs::write(out.join("cluster.md"), &markdown)?;
    print!("{markdown}");
    write_picture(&out.join("cluster.svg"), &cluster::draw(&run)?)
}

/// Writes SVG, and PNG if a program to convert it is installed.
fn write_picture(path: &Path, svg: &str) -> Result<(), Box<dyn Error>> {
    fs::write(path, svg)?;
    if let Some(program) = in_path("rsvg-convert") {
        let mut command = Command::new(program);
        command.args(["--zoom=2", "-o"]).arg(path.with_extension("png"));
        command.arg(path).status()?;
    }
    Ok(())
}
