//! The resources of a task, as text.

/// Ray's prefix for a requested GPU type: `accelerator_type:A100`, of which a task holds a tiny amount.
const ACCELERATOR_PREFIX: &str = "accelerator_type:";

/// Formats resources: `2 GPU (A100), 1 CPU`, or `nothing`.
pub(super) fn format_resources<'a>(resources: impl IntoIterator<Item = (&'a str, f64)>) -> String {
    let (mut gpus, mut cpus, mut types, mut others) = (None, None, Vec::new(), Vec::new());
    for (name, amount) in resources {
        match (name, name.strip_prefix(ACCELERATOR_PREFIX)) {
            (_, Some(kind)) => types.push(kind),
            ("GPU", _) => gpus = Some(amount),
            ("CPU", _) => cpus = Some(amount),
            ("memory" | "object_store_memory", _) => {
                others.push(format!("{} MiB {name}", (amount / 1_048_576.0).round()));
            }
            _ => others.push(format!("{amount} {name}")),
        }
    }
    let kind = match types.is_empty() {
        true => String::new(),
        false => format!(" ({})", types.join(", ")),
    };
    let gpus = gpus.map(|amount| format!("{amount} GPU{kind}"));
    let cpus = cpus.map(|amount| format!("{amount} CPU"));
    let all: Vec<String> = gpus.into_iter().chain(cpus).chain(others).collect();
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_listed_first() {
        assert_eq!(
            format_resources([("CPU", 1.0), ("GPU", 0.5), ("accelerator_type:A100", 0.001)]),
            "0.5 GPU (A100), 1 CPU"
        );
        assert_eq!(
            format_resources([("CPU", 4.0), ("memory", 1_073_741_824.0), ("tpu", 1.0)]),
            "4 CPU, 1024 MiB memory, 1 tpu"
        );
        assert_eq!(format_resources([]), "nothing");
    }
}
