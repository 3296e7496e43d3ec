//! The printed table, and all figures as JSON.

use serde_json::{Value, json};

use crate::harness::contest::Contestant;
use crate::harness::table::{Compared, Goal, Row, Table, Unit};
use crate::harness::yard::Yard;

/// On standard output.
pub(crate) fn print(yard: &Yard, table: &Table) {
    println!("{}", circumstances(yard));
    if yard.haproxy.is_none() {
        println!("HAProxy is not installed (Debian package: haproxy), so its column is empty");
    }
    if yard.ssh.is_none() {
        println!(
            "no OpenSSH server is installed (Debian package: openssh-server), so its column is missing"
        );
    }
    let mut heading = String::new();
    for row in &table.rows {
        // Without a tunnel there is no such column.
        let tunnels = row.contestants.contains(&Contestant::Ssh);
        let all: &[Contestant] = match tunnels {
            true => &Contestant::TUNNELS,
            false => &Contestant::USUAL,
        };
        let there = |c: &Contestant| yard.has(*c) || *c == Contestant::HaProxy;
        let columns: Vec<Contestant> = all.iter().copied().filter(there).collect();
        let head = head(&columns);
        if head != heading {
            println!("{head}");
            heading = head;
        }
        println!("{}", line(yard, row, &columns));
    }
    let all: f64 = table.times.iter().map(|(_, seconds)| seconds).sum();
    let each = table
        .times
        .iter()
        .map(|(name, seconds)| format!("{name} {seconds:.0}"));
    let each: Vec<String> = each.collect();
    println!("{all:.0} s in all: {}", each.join(", "));
}

fn head(columns: &[Contestant]) -> String {
    let mut head = format!("{:<52}{:>6}", "median", "unit");
    for contestant in columns {
        head += &format!("{:>10}", contestant.name());
    }
    for other in &columns[1..] {
        head += &format!("{:>10}", format!("/{}", other.name()));
    }
    head + "  goal"
}

fn line(yard: &Yard, row: &Row, columns: &[Contestant]) -> String {
    let mut line = format!("{:<52}{:>6}", row.name, row.unit.name);
    for contestant in columns {
        let figure = row.median(*contestant).map(|value| shown(value, row.unit));
        line += &format!("{:>10}", figure.unwrap_or_else(|| "-".to_owned()));
    }
    for other in &columns[1..] {
        let compared = row.to(*other).map(|value| match row.compared {
            Compared::Ratio => format!("{value:.2}"),
            Compared::Difference => format!("{:+.1}", value * row.unit.scale),
        });
        line += &format!("{:>10}", compared.unwrap_or_else(|| "-".to_owned()));
    }
    let verdict = match row.meets() {
        // Short or unoptimised runs prove nothing.
        Some(_) if yard.short || cfg!(debug_assertions) => "",
        Some(true) => "  met",
        Some(false) => "  missed",
        None => "",
    };
    let line = format!("{line}  {}{verdict}", goals(row));
    line.trim_end().to_owned()
}

fn goals(row: &Row) -> String {
    let goals = row.goals.iter().map(|goal| text(*goal, row.unit));
    goals.collect::<Vec<_>>().join(" and ")
}

/// All figures, to compare runs.
pub(crate) fn json(yard: &Yard, table: &Table) -> Value {
    let of_each = |figure: &dyn Fn(Contestant) -> Value| -> Value {
        let each = Contestant::TUNNELS.into_iter().filter(|c| yard.has(*c));
        each.map(|c| (c.name().to_owned(), figure(c))).collect()
    };
    let mut heading = "";
    let mut rows = Vec::new();
    for row in &table.rows {
        // An indented row says more of the one above.
        let name = match row.name.strip_prefix("  ") {
            Some(more) => format!("{heading}: {more}"),
            None => {
                heading = &row.name;
                row.name.clone()
            }
        };
        rows.push(json!({
            "name": name,
            "unit": row.unit.name,
            "scale": row.unit.scale,
            "rounds": of_each(&|c| json!(row.figures(c))),
            "median": of_each(&|c| json!(row.median(c))),
            "compared": of_each(&|c| json!(row.to(c))),
            "difference": row.compared == Compared::Difference,
            "goal": (!row.goals.is_empty()).then(|| goals(row)),
            "met": row.meets(),
        }));
    }
    let seconds: Value = table
        .times
        .iter()
        .map(|(name, seconds)| (name.to_string(), json!(seconds)))
        .collect();
    json!({
        "circumstances": circumstances(yard),
        "rows": rows,
        "seconds": seconds,
    })
}

/// Three significant digits.
fn shown(value: f64, unit: Unit) -> String {
    let value = value * unit.scale;
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn text(goal: Goal, unit: Unit) -> String {
    match goal {
        Goal::AtMost(times, other) => format!("<= {times} {}", other.name()),
        Goal::AtLeast(times, other) => format!(">= {times} {}", other.name()),
        Goal::Above(bound, other) => {
            format!("<= {} + {} {}", other.name(), bound * unit.scale, unit.name)
        }
        Goal::Within(bound) => format!("<= {} {}", bound * unit.scale, unit.name),
    }
}

/// Describes the time, the machine and the compared programs.
fn circumstances(yard: &Yard) -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let autogroup = match read("/proc/sys/kernel/sched_autogroup_enabled").trim() {
        "1" => "on",
        "0" => "off",
        _ => "unknown",
    };
    let build = if cfg!(debug_assertions) {
        "not optimised"
    } else {
        "optimised"
    };
    format!(
        "{}, {cores} cores ({}), Linux {}, autogroup {autogroup}; {build}, {} rounds; HAProxy {}; base {}",
        chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now())
            .format("%Y-%m-%d %H:%M UTC"),
        model.unwrap_or("?"),
        read("/proc/sys/kernel/osrelease").trim(),
        yard.rounds,
        yard.haproxy.as_ref().map_or("none", |found| &found.version),
        yard.base
            .as_ref()
            .map_or_else(|| "none".to_owned(), |path| path.display().to_string()),
    )
}
