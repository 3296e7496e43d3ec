//! The code of a notebook's cells, recognised by the file names of IPython and ipykernel.
//!
//! Ray sends a function that is defined in a cell to its workers without its source, and the file is in no folder.

/// The sentence in place of the source.
pub const NO_SOURCE: &str = "a cell of a notebook: its source is in the notebook alone";

/// Advice how to get the source.
pub const INTO_A_MODULE: &str = "for its source in the debugger, put the function into a module in the notebook's folder, and give ray.init() that folder as `working_dir`";

/// Returns whether `path` is that of a cell: `<ipython-input-3-0a1b2c>`, `/tmp/ipykernel_8161/556234171.py`.
pub fn is_cell(path: &str) -> bool {
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    path.starts_with("<ipython-input-") || folder.starts_with("ipykernel_")
}

/// A location in a cell, since the name of its file means nothing to a person.
pub fn place_in_cell(line: Option<u64>) -> String {
    let line = line.map(|line| format!(", line {line}"));
    format!("a notebook's cell{}", line.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notebook_cells_differ_from_files() {
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
