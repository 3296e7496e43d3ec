//! Highlights Python source in the terminal's own colours, which fit light and dark backgrounds.
//!
//! Each line is parsed on its own, because a listing may begin anywhere. So the continuation of a multi-line string is
//! not recognized.

const COMMENT: &str = "\u{1b}[2m";
const STRING: &str = "\u{1b}[32m";
const NAME: &str = "\u{1b}[34m";
const KEYWORD: &str = "\u{1b}[35m";
const CONSTANT: &str = "\u{1b}[36m";
const PLAIN: &str = "";

const KEYWORDS: &str = " and as assert async await break class continue def del elif else except finally for from \
    global if import in is lambda nonlocal not or pass raise return try while with yield ";
const CONSTANTS: &str = " True False None NotImplemented Ellipsis ";
/// Functions, types and exceptions available in every module.
const BUILTINS: &str = " abs all any ascii bin bool bytearray bytes callable chr classmethod compile complex delattr dict \
    dir divmod enumerate eval exec filter float format frozenset getattr globals hasattr hash help hex id input int \
    isinstance issubclass iter len list locals map max memoryview min next object oct open ord pow print property range \
    repr reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip \
    ArithmeticError AssertionError AttributeError BaseException BlockingIOError BrokenPipeError BufferError \
    BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError \
    DeprecationWarning EOFError Exception FileExistsError FileNotFoundError FloatingPointError FutureWarning \
    GeneratorExit IOError ImportError ImportWarning IndentationError IndexError InterruptedError IsADirectoryError \
    KeyError KeyboardInterrupt LookupError MemoryError NameError NotADirectoryError NotImplementedError OSError \
    OverflowError PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError \
    ResourceWarning RuntimeError RuntimeWarning StopIteration SyntaxError SyntaxWarning SystemError SystemExit TabError \
    TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError \
    UnicodeWarning UserWarning ValueError Warning ZeroDivisionError ";

/// Colours `line`, and changes nothing else.
pub(super) fn coloured(line: &str) -> String {
    let mut painter = Painter {
        painted: String::with_capacity(2 * line.len()),
        rest: line,
        before: "",
        parameters: false,
    };
    painter.code(None);
    painter.painted
}

struct Painter<'a> {
    painted: String,
    rest: &'a str,
    /// The last word or sign.
    before: &'a str,
    /// Whether the rest is between `def` or `lambda` and the end of its parameters.
    parameters: bool,
}

impl<'a> Painter<'a> {
    /// Moves at most `length` bytes of the rest over.
    fn paint(&mut self, length: usize, colour: &str) {
        let (part, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        self.rest = rest;
        let off = if colour.is_empty() { "" } else { "\u{1b}[0m" };
        if !part.is_empty() {
            self.painted.extend([colour, part, off]);
        }
        if !part.trim().is_empty() {
            self.before = part;
        }
    }

    /// Colours code to the end of the line. In a replacement field of an f-string (`within` its quote), colours to the
    /// end of the expression.
    fn code(&mut self, within: Option<&str>) {
        let mut depth = 0_usize;
        while let Some(first) = self.rest.chars().next() {
            match first {
                '}' | ':' | '!'
                    if within.is_some() && depth == 0 && !self.rest.starts_with("!=") =>
                {
                    return;
                }
                '\'' | '"' if within.is_some_and(|quote| self.rest.starts_with(quote)) => return,
                '#' => self.paint(usize::MAX, COMMENT),
                '\'' | '"' => self.string(""),
                '.' if self.rest.starts_with("...") => self.paint(3, CONSTANT),
                '.' | '0'..='9' if number(self.rest) > 0 => self.paint(number(self.rest), CONSTANT),
                _ if first.is_alphabetic() || first == '_' => self.word(depth),
                _ => {
                    match first {
                        '(' | '[' | '{' => depth += 1,
                        ')' | ']' | '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    self.parameters &= !matches!((first, depth), (')' | ':', 0));
                    self.paint(first.len_utf8(), PLAIN);
                }
            }
        }
    }

    fn word(&mut self, depth: usize) {
        let inside = |c: char| !(c.is_alphanumeric() || c == '_');
        let (word, after) = self
            .rest
            .split_at(self.rest.find(inside).unwrap_or(self.rest.len()));
        let prefix = matches!(
            &*word.to_lowercase(),
            "r" | "u" | "b" | "f" | "br" | "rb" | "fr" | "rf"
        );
        if prefix && after.starts_with(['\'', '"']) {
            self.paint(word.len(), KEYWORD);
            self.string(word);
            return;
        }
        let after = after.trim_start();
        let named = depth > 0 && after.starts_with('=') && !after.starts_with("==");
        let parameter =
            self.parameters && (named || matches!(self.before, "(" | "," | "*" | "lambda"));
        let is_in = |words: &str| words.split(' ').any(|one| one == word);
        let colour = if is_in(KEYWORDS) {
            KEYWORD
        } else if is_in(CONSTANTS) {
            CONSTANT
        } else if matches!(self.before, "def" | "class")
            || word.len() > 4 && word.starts_with("__") && word.ends_with("__")
            || is_in(BUILTINS) && self.before != "." && !named && !parameter
        {
            NAME
        } else {
            PLAIN
        };
        self.parameters |= matches!(word, "def" | "lambda");
        self.paint(word.len(), colour);
    }

    /// Colours the string at the next quote, after `prefix`.
    fn string(&mut self, prefix: &str) {
        let has = |letter: &str| prefix.to_lowercase().contains(letter);
        let (raw, fields) = (has("r"), has("f"));
        let triple = self.rest.starts_with("\"\"\"") || self.rest.starts_with("'''");
        let (quote, _) = self.rest.split_at(if triple { 3 } else { 1 });
        // Documentation, as far as a single line can tell.
        let colour = if self.before.is_empty() && triple {
            COMMENT
        } else {
            STRING
        };
        self.paint(quote.len(), colour);
        loop {
            let special = |c: char| matches!(c, '\\' | '%' | '{' | '}') || quote.starts_with(c);
            self.paint(self.rest.find(special).unwrap_or(self.rest.len()), colour);
            let rest = self.rest;
            if rest.is_empty() {
                return;
            } else if rest.starts_with(quote) {
                return self.paint(quote.len(), colour);
            } else if colour == COMMENT {
                self.paint(1, colour);
            } else if rest.starts_with('\\') {
                self.paint(escape(rest, raw), CONSTANT);
            } else if fields && (rest.starts_with("{{") || rest.starts_with("}}")) {
                self.paint(2, CONSTANT);
            } else if fields && rest.starts_with('{') {
                self.field(quote);
            } else {
                match placeholder(rest) {
                    0 => self.paint(1, colour),
                    length => self.paint(length, CONSTANT),
                }
            }
        }
    }

    /// Colours a replacement field of an f-string: `{expression!r:>10}`.
    fn field(&mut self, quote: &str) {
        self.paint(1, PLAIN);
        self.code(Some(quote));
        if self.rest.starts_with('!') {
            self.paint(2, KEYWORD);
        }
        if self.rest.starts_with(':') {
            let end = |c: char| c == '}' || quote.starts_with(c);
            self.paint(self.rest.find(end).unwrap_or(self.rest.len()), CONSTANT);
        }
        if self.rest.starts_with('}') {
            self.paint(1, PLAIN);
        }
    }
}

/// Length of the escape at the beginning of `rest`.
fn escape(rest: &str, raw: bool) -> usize {
    let mut chars = rest.chars();
    let _backslash = chars.next();
    let digits = |most: usize, base: u32| {
        let digits = rest.chars().skip(if base == 8 { 1 } else { 2 });
        digits.take(most).take_while(|c| c.is_digit(base)).count()
    };
    match chars.next() {
        Some('x') if !raw => 2 + digits(2, 16),
        Some('u') if !raw => 2 + digits(4, 16),
        Some('U') if !raw => 2 + digits(8, 16),
        Some('N') if !raw && rest.get(2..3) == Some("{") => rest.find('}').map_or(2, |end| end + 1),
        Some('0'..='7') if !raw => 1 + digits(3, 8),
        Some(other) => 1 + other.len_utf8(),
        None => 1,
    }
}

/// Length of a placeholder of `%` or `str.format` at the beginning of `rest`; 0 if there is none.
fn placeholder(rest: &str) -> usize {
    let end = |from: usize, of: &str| {
        let found = rest
            .get(from..)
            .and_then(|rest| rest.find(|c| !of.contains(c)));
        from + found.unwrap_or(rest.len() - from)
    };
    if let Some(field) = rest.strip_prefix('{') {
        let outside = |c: char| !(c.is_alphanumeric() || "_.[]!:<>=^+-,% #".contains(c));
        let close = field.find(outside).unwrap_or(field.len());
        return if field[close..].starts_with('}') {
            close + 2
        } else {
            0
        };
    }
    if !rest.starts_with('%') {
        return 0;
    }
    let name = rest
        .get(1..)
        .filter(|rest| rest.starts_with('('))
        .and_then(|rest| rest.find(')'));
    let flags = end(name.map_or(1, |end| end + 2), "#0- +*.123456789hlL");
    match rest[flags..].chars().next() {
        Some(kind) if "diouxXeEfFgGcrsa%".contains(kind) => flags + 1,
        _ => 0,
    }
}

/// Length of the number at the beginning of `rest`; 0 if there is none.
fn number(rest: &str) -> usize {
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if !digit(rest.strip_prefix('.').unwrap_or(rest)) {
        return 0;
    }
    let hexadecimal = rest.get(..2).is_some_and(|x| x.eq_ignore_ascii_case("0x"));
    let mut before = '0';
    let end = rest.find(|c: char| {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E') && !hexadecimal;
        before = c;
        !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || sign)
    });
    end.unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns each coloured part after the name of its colour.
    fn parts(line: &str) -> String {
        let highlighted = coloured(line);
        let mut parts = Vec::new();
        for part in highlighted.split("\u{1b}[0m") {
            for (code, name) in [
                (COMMENT, "comment"),
                (STRING, "string"),
                (NAME, "name"),
                (KEYWORD, "keyword"),
                (CONSTANT, "constant"),
            ] {
                if let Some((_, text)) = part.split_once(code) {
                    parts.push(format!("{name} {text}"));
                }
            }
        }
        parts.join(", ")
    }

    #[test]
    fn python_is_highlighted() {
        for (line, expected) in [
            (
                "def f(x: int, type=1):  # größe",
                "keyword def, name f, name int, constant 1, comment # größe",
            ),
            ("class Trainer(Base):", "keyword class, name Trainer"),
            (
                "raise ValueError('bad %s\\n' % x) from None",
                "keyword raise, name ValueError, string ', string bad , constant %s, constant \\n, string ', \
                 keyword from, constant None",
            ),
            (
                "x.print(len(y), key=0xFFe+1e-9, sum=...)",
                "name len, constant 0xFFe, constant 1e-9, constant ...",
            ),
            (
                "f\"{x!r:>10} {y['k']}}}\" r'\\d'",
                "keyword f, string \", keyword !r, constant :>10, string  , string ', string k, string ', constant }}, \
                 string \", keyword r, string ', constant \\d, string '",
            ),
            ("\"\"\"What it does", "comment \"\"\", comment What it does"),
            (
                "'{0}' '{}' '{ a b'",
                "string ', constant {0}, string ', string ', constant {}, string ', \
             string ', string {, string  a b, string '",
            ),
            ("'open", "string ', string open"),
        ] {
            assert_eq!(parts(line), expected, "{line}");
        }
    }

    proptest! {
        /// The text may be incomplete or no Python at all.
        #[test]
        fn highlighting_keeps_the_text(line in "([ -~]|[fr]?['\"]|\\\\|[%{}:!#.]|ü|def |0x|1e){0,40}") {
            let mut plain = coloured(&line);
            for code in [COMMENT, STRING, NAME, KEYWORD, CONSTANT, "\u{1b}[0m"] {
                plain = plain.replace(code, "");
            }
            prop_assert_eq!(plain, line);
        }
    }
}
