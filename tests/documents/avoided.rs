//! The words that are not used: on pages, in the help of commands, in messages, and in comments.

/// Words, and what to write.
pub(crate) const AVOIDED: &[(&str, &str)] = &[
    (
        "somebody",
        "name the role: a client, a person, an operator, another user",
    ),
    ("someone else", "another person"),
    ("nobody", "`no client`, `no one`, or the passive voice"),
    ("anybody", "`any client`, `each person`, `everyone`"),
    (
        "whoever",
        "name the role: `a client that ...`, `a person who ...`",
    ),
    ("whomever", "name the role"),
    ("in vain", "say what failed"),
    ("comes out at", "say what leads where"),
    ("who is who", "`who each client is`"),
    ("what is what", "say which things are told apart"),
    ("what is no", "say what it is"),
    ("by itself alone", "`alone`"),
    ("simply", "leave it out"),
    ("obviously", "leave it out"),
    ("utilize", "`use`"),
];

/// Returns those of `words` that `text` has as whole words; `somebody's` counts as `somebody`.
pub(crate) fn among<'a>(
    words: &'a [(&'a str, &'a str)],
    text: &str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let text = text
        .to_lowercase()
        .replace(|c: char| !c.is_alphanumeric(), " ");
    let text: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let text = format!(" {} ", text.join(" "));
    let is_there = move |word: &&(&str, &str)| text.contains(&format!(" {} ", word.0));
    words.iter().filter(is_there).copied()
}
