//! `[log]`: what is logged, and how.

use tracing::metadata::LevelFilter;
use tracing_subscriber::filter::Targets;

use crate::config::kind::{ValueKind, choice, quoted};
use crate::config::problem::{Wrong, nearest, printable};
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};

settings! {
    /// `[log]`: what is logged, and how.
    pub struct Log = "log" {
        /// A tracing filter such as `info` or `ray_relay_dap=debug,info`.
        level: String = "info".to_owned(), ValueKind::new(filter, quoted);
        /// Form of a line.
        format: LogFormat = LogFormat::Text, choice();
    }
}

words! {
    /// Form of a log line.
    #[derive(clap::ValueEnum)]
    pub enum LogFormat {
        /// Text for people, coloured on a terminal only.
        #[value(help = "For people")]
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

fn filter(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "a level (off, error, warn, info, debug, trace) or a filter such as \"ray_relay_dap=debug,info\"";
    let filter = read::text(value, EXPECTED)?;
    // tracing takes a misspelt level for the name of a module, and then logs nothing at all.
    let misspelt = filter
        .split(',')
        .map(str::trim)
        .find(|directive| !directive.contains('=') && directive.parse::<LevelFilter>().is_err());
    if let Some(word) = misspelt {
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let hint = match nearest(word, levels) {
            Some(near) => format!("did you mean {near}?"),
            None => format!(
                "for everything of one module write {}=trace",
                printable(word)
            ),
        };
        return Err(Wrong::expected(EXPECTED).hint(hint));
    }
    // A filter on spans would be looked up with every message that passes.
    match filter.parse::<Targets>() {
        Ok(_) if !filter.contains(['[', '{']) => Ok(filter),
        _ => Err(Wrong::expected(EXPECTED)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn log_filter_accepts_levels_and_modules_only() {
        let read = |text: &str| filter(&RawValue::Text(text.to_owned()));
        for valid in ["off", "info", "ray_relay_dap=debug,info"] {
            assert_eq!(read(valid).unwrap(), valid);
        }
        for invalid in [
            "inof",
            "ray_relay",
            "[session]=debug",
            "[{session=1}]=debug",
            "a=b=c",
            "a=loud",
        ] {
            assert!(read(invalid).is_err(), "{invalid}");
        }
    }
}
