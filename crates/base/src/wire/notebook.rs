//! Code of a notebook's cells, by the file names that IPython and ipykernel give it.
//!
//! Ray sends a function that is defined in a cell to its workers without its source, and the file is in no folder.

/// A sentence for where the source would be.
pub const NO_SOURCE: &str = "a cell of a notebook: its source is in the notebook alone";

/// How to have the source.
pub const INTO_A_MODULE: &str = "for its source in the debugger, put the function into a module in the notebook's folder, and give ray.init() that folder as `working_dir`";

/// Returns whether `path` is that of a cell: `<ipython-input-3-0a1b2c>`, `/tmp/ipykernel_8161/556234171.py`.
pub fn is_cell(path: &str) -> bool {
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    path.starts_with("<ipython-input-") || folder.starts_with("ipykernel_")
}

/// A place in a cell: the name of its file says nothing to a person.
pub fn place_in_cell(line: Option<u64>) -> String {
    let line = line.map(|line| format!(", line {line}"));
    format!("a notebook's cell{}", line.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_told_from_files() {
        for cell in [
            "/tmp/ipykernel_8161/556234171.py",
            "ipykernel_8161/556234171.py",
            "<ipython-input-3-0a1b2c>",
        ] {
            assert!(is_cell(cell), "{cell}");
        }
        for file in [
            "/home/ann/ipykernel_tools.py",
            "train.py",
            "<string>",
            "",
            "/v/ipykernel/zmqshell.py",
        ] {
            assert!(!is_cell(file), "{file}");
        }
    }
}
