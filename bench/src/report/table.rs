//! The tables for people.

use comfy_table::{CellAlignment, LineStyle, Table, presets::NOTHING};

use super::{Comparison, Program, Report, Values};
use crate::{contender::Name, failover, figure::Figure, goal::Mark};

/// Heading, figures, verdicts.
pub(super) fn render(report: &Report) -> String {
    format!("{}\n\n{}", heading(report), tables(&report.comparison))
}

/// Figures, verdicts.
pub(crate) fn tables(report: &Comparison) -> String {
    let mut text = format!("{}\n", figures(report));
    if !report.verdicts.is_empty() {
        text.push_str(&format!("\n{}\n", verdicts(report)));
    }
    text
}

/// A line for each program.
pub(crate) fn versions(report: &Comparison) -> String {
    let lines = report.programs.iter().map(|program| format!("\n{}: {}", program.name, program.version));
    lines.collect()
}

fn heading(report: &Report) -> String {
    let mut text = format!("{}; ", report.machine);
    let what = match report.failovers {
        Some(repetitions) => format!("{repetitions} failovers with {} prefixes", failover::PREFIXES),
        None => format!("{} s", report.seconds),
    };
    text.push_str(&format!("median of {} rounds of {what} (lowest..highest round)", report.rounds));
    if let Some(peers) = report.peers {
        text.push_str(&format!("; N = {peers} peers that never answer, and one that does"));
    }
    for program in &report.comparison.programs {
        text.push_str(&format!("\n{}: {}", program.name, program.version));
        if program.name == Name::Isthmus && !report.config.is_empty() {
            text.push_str(&format!(" with {}", report.config.join(", ")));
        }
    }
    text
}

fn figures(report: &Comparison) -> Table {
    let mut table = table(report.programs.len() + rivals(report).count());
    let mut header = vec!["figure".to_owned()];
    header.extend(report.programs.iter().map(|program| program.name.to_string()));
    header.extend(rivals(report).map(|program| format!("vs {}", program.name)));
    table.set_header(header);
    let mut all: Vec<Figure> =
        report.programs.iter().flat_map(|program| program.figures.keys().copied()).collect();
    all.sort_unstable();
    all.dedup();
    for figure in all {
        table.add_row(row(report, figure));
    }
    table
}

/// Rivals, where there is somebody to compare them with.
fn rivals(report: &Comparison) -> impl Iterator<Item = &Program> {
    let ours = report.programs.iter().any(|program| program.name == Name::Isthmus);
    report.programs.iter().filter(move |program| ours && program.name != Name::Isthmus)
}

fn row(report: &Comparison, figure: Figure) -> Vec<String> {
    let mut row = vec![format!("{}, {}", figure.title(), figure.unit())];
    let cell = |program: &Program| program.figures.get(&figure).map(|values| spread(figure, values));
    row.extend(report.programs.iter().map(|program| cell(program).unwrap_or_default()));
    for rival in rivals(report) {
        let ratio = report.ratios.iter().find(|ratio| ratio.figure == figure && ratio.rival == rival.name);
        row.push(ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}x", ratio.ratio)));
    }
    row
}

fn spread(figure: Figure, values: &Values) -> String {
    let (summary, digits) = (values.summary, figure.decimals());
    let median = format!("{:.digits$}", summary.median);
    if values.rounds.len() < 2 {
        return median;
    }
    format!("{median} ({:.digits$}..{:.digits$})", summary.min, summary.max)
}

fn verdicts(report: &Comparison) -> Table {
    let mut table = table(0);
    table.set_header(["goal", "measured", "at least", "aim", "result"]);
    for verdict in &report.verdicts {
        let mark = match verdict.mark {
            Mark::Aim => "pass, aim reached",
            Mark::Pass => "pass",
            Mark::Fail => "FAIL",
        };
        let title = verdict.figure.title().to_owned();
        let (measured, least, aim) =
            (verdict.measured.clone(), verdict.at_least.clone(), verdict.aim.clone());
        table.add_row([title, measured, least, aim, mark.to_owned()]);
    }
    table
}

/// A table whose columns 1 to `numbers` are of numbers.
pub(crate) fn table(numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    let columns = 1..=numbers;
    table.set_header(vec![""; numbers + 1]);
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;

    #[test]
    fn the_table_has_figures_ratios_and_marks() {
        let text = sample().table();
        let line = |start: &str| {
            text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{text}"))
        };
        assert!(text.starts_with("2 cores, AMD EPYC, Linux 6.18.0; median of 3 rounds of 5 s"), "{text}");
        assert!(line("isthmus:").ends_with("isthmusd 0.1.0 with mtu = 1400"));
        let words: Vec<&str> = line("TCP 1 stream, Gb/s").split_whitespace().collect();
        assert_eq!(words[4..], ["3.50", "(3.00..4.00)", "2.00", "(2.00..2.00)", "1.75x"]);
        assert!(line("ping average, ms").contains("0.20x"));
        assert!(
            text.lines().any(|line| line.contains("1.75x wireguard-go") && line.trim_end().ends_with("pass")),
            "{text}"
        );
    }
}
