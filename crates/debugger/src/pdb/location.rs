//! Parses locations in a program, as typed after `break`. Pure.

/// The part before the comma, as in pdb: `[FILE:]LINE` or a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    /// A line of a file or module; `Err` holds a text that is no number.
    File {
        name: &'a str,
        line: Result<u32, &'a str>,
    },
    /// A line of the current file.
    Line(u32),
    /// An expression that names a function.
    Function(&'a str),
}

/// Parses the argument of `break`, which is not empty, into its location and its condition.
pub fn read(text: &str) -> (Location<'_>, Option<&str>) {
    let (place, condition) = match text.split_once(',') {
        Some((place, condition)) if !place.is_empty() => {
            (place.trim_end(), Some(condition.trim_start()))
        }
        _ => (text, None),
    };
    let condition = condition.filter(|text| !text.is_empty());
    let location = match (place.rsplit_once(':'), place.trim().parse()) {
        (Some((name, line)), _) => {
            let line = line.trim_start();
            Location::File {
                name: name.trim_end(),
                line: line.parse().map_err(|_| line),
            }
        }
        (None, Ok(line)) => Location::Line(line),
        (None, Err(_)) => Location::Function(place),
    };
    (location, condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_parsed_as_in_pdb() {
        let file = |name, line| Location::File { name, line };
        for (text, location, condition) in [
            ("12", Location::Line(12), None),
            ("12, x > 2", Location::Line(12), Some("x > 2")),
            ("12 ,", Location::Line(12), None),
            ("a.py:3", file("a.py", Ok(3)), None),
            ("a.py : 3, f(x, y)", file("a.py", Ok(3)), Some("f(x, y)")),
            ("C:/a.py:3", file("C:/a.py", Ok(3)), None),
            ("a.py:x", file("a.py", Err("x")), None),
            ("a.py:-1", file("a.py", Err("-1")), None),
            (":3", file("", Ok(3)), None),
            ("mod.f", Location::Function("mod.f"), None),
            (",x", Location::Function(",x"), None),
            // A colon in the condition is not part of the location.
            ("f, x[1:2]", Location::Function("f"), Some("x[1:2]")),
        ] {
            assert_eq!(read(text), (location, condition), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn formatted_location_is_parsed_back(
            name in "[a-z/. :]{0,12}[a-z]", line in 0u32..2_000_000_000, blanks in "[ \t]{0,3}", condition in "[a-z,:= ]{0,9}",
        ) {
            let file = Location::File { name: &name, line: Ok(line) };
            let condition = condition.trim();
            let expected = Some(condition).filter(|text| !text.is_empty());
            let text = format!("{name}{blanks}:{blanks}{line}{blanks},{blanks}{condition}");
            proptest::prop_assert_eq!(read(&text), (file, expected));
            let text = format!("{line}{blanks},{condition}");
            proptest::prop_assert_eq!(read(&text), (Location::Line(line), expected));
        }

        #[test]
        fn any_location_is_parsed_without_invention(text in ".{1,60}") {
            let (location, condition) = read(&text);
            let parts = match location {
                Location::File { name, line } => [name, line.err().unwrap_or_default()],
                Location::Line(_) => ["", ""],
                Location::Function(name) => [name, ""],
            };
            for part in parts.into_iter().chain(condition) {
                proptest::prop_assert!(text.contains(part));
            }
        }
    }
}
