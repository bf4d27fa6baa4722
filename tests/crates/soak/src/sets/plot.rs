//! The imbalance over time, as a table and as a picture.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use super::fleet::FaultKind;

/// The state of the set at one time.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub seconds: f64,
    /// Members to which nothing happens at the moment.
    pub members: usize,
    /// Shards on which a member works.
    pub led: usize,
    /// By how many shards the member that leads the most differs from the one that leads the least.
    pub imbalance: usize,
}

/// A fault, and when it was.
#[derive(Debug, Clone)]
pub struct FaultAt {
    pub ns: u64,
    pub seconds: f64,
    pub kind: FaultKind,
    pub member: String,
}

/// Writes `FILE.csv` and `FILE.svg`.
pub fn write(file: &Path, title: &str, samples: &[Sample], faults: &[FaultAt]) -> io::Result<()> {
    fs::write(file.with_extension("csv"), table(samples, faults))?;
    fs::write(file.with_extension("svg"), picture(title, samples, faults))
}

fn table(samples: &[Sample], faults: &[FaultAt]) -> String {
    let mut text = "seconds,members,shards_led,imbalance,faults\n".to_owned();
    let mut faults = faults.iter().peekable();
    for Sample { seconds, members, led, imbalance } in samples {
        let mut since = Vec::new();
        while let Some(fault) = faults.next_if(|fault| fault.seconds <= *seconds) {
            since.push(fault.kind.as_str());
        }
        let since = since.join(" ");
        let _ = writeln!(text, "{seconds:.0},{members},{led},{imbalance},{since}");
    }
    text
}

const LEFT: f64 = 60.0;
const RIGHT: f64 = 940.0;
const TOP: f64 = 80.0;
const BOTTOM: f64 = 280.0;

fn picture(title: &str, samples: &[Sample], faults: &[FaultAt]) -> String {
    let end = samples.last().map_or(1.0, |sample| sample.seconds).max(1.0);
    let most = samples.iter().map(|sample| sample.imbalance).max().unwrap_or(1).max(1) as f64;
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / end;
    let y = |imbalance: f64| BOTTOM - (BOTTOM - TOP) * imbalance / most;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 330\" role=\"img\" \
         aria-labelledby=\"title\" font-family=\"system-ui, sans-serif\" font-size=\"12\" \
         fill=\"#59636e\">\n<title id=\"title\">{title}</title>\n<rect x=\"0.5\" y=\"0.5\" \
         width=\"959\" height=\"329\" rx=\"8\" fill=\"#f6f8fa\" stroke=\"#8c959f\"/>\n<text x=\"20\" \
         y=\"28\" fill=\"#1f2328\" font-weight=\"bold\" font-size=\"15\">{title}</text>\n"
    );
    for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
        let at = LEFT + 110.0 * index as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{at}\" y=\"46\" width=\"3\" height=\"14\" fill=\"{}\"/><text x=\"{}\" \
             y=\"58\">{kind}</text>",
            color(kind),
            at + 8.0
        );
    }
    for step in 0..=4 {
        let value = (most * f64::from(step) / 4.0).round();
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{RIGHT}\" y2=\"{0:.1}\" stroke=\"#d0d7de\"/>\
             <text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{value}</text>",
            y(value),
            LEFT - 8.0,
            y(value) + 4.0
        );
    }
    for fault in faults {
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.1}\" y1=\"{TOP}\" x2=\"{0:.1}\" y2=\"{BOTTOM}\" stroke=\"{1}\" \
             stroke-width=\"1.5\" opacity=\"0.6\"/>",
            x(fault.seconds),
            color(fault.kind)
        );
    }
    let mut points = String::new();
    for sample in samples {
        let _ = write!(points, "{:.1},{:.1} ", x(sample.seconds), y(sample.imbalance as f64));
    }
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f2328\" stroke-width=\"1.5\"/>",
        points.trim_end()
    );
    let (last, below) = ((end / 60.0).floor() as u32, BOTTOM + 18.0);
    for minute in 0..=last {
        let at = x(f64::from(minute) * 60.0);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{minute}</text>"
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">minutes; the line: shards of the member \
         that leads the most, less those of the one that leads the least</text>\n</svg>",
        BOTTOM + 38.0
    );
    svg
}

fn color(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Killed => "#cf222e",
        FaultKind::Stopped => "#bf8700",
        FaultKind::Paused => "#8250df",
        FaultKind::Partitioned => "#0969da",
        FaultKind::Added => "#1a7f37",
    }
}
