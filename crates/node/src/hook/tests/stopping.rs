//! Tests `ray_relay.breakpoint()`: its location, and the ranks that stop.

use super::*;

/// Prints each call and its location instead of calling Ray's `breakpoint()`.
const STOP_PROLOGUE: &str = r#"
def stop():
    frame = sys._getframe(1)
    names = []
    while frame: names.append(frame.f_code.co_name); frame = frame.f_back
    print("stopped" + ("+" if "_stop_with_group" in names else ""), end=" ")
sys.breakpointhook = stop
class Several:
    def __init__(self, *values): self.values = values
    def __bool__(self): raise ValueError("ambiguous")
    def any(self): return any(self.values)
stops = hook["breakpoint"]
def told(what): print(what, flush=True)
"#;

/// Returns the line that `program` prints.
fn output(program: &str, env: &[(&str, &str)]) -> Option<String> {
    let mut hooked = Hooked::start_with(
        &format!("{STOP_PROLOGUE}ready()\n{program}\ntold('.')\nready()"),
        env,
    )?;
    Some(hooked.resume())
}

#[test]
fn conditional_stop_reports_whether_the_group_stops() {
    let nan = "loss = float('nan')\n";
    for (program, expected) in [
        ("stops()", "stopped ."),
        ("stops(when=loss != loss)", "stopped ."),
        ("stops(when=loss == loss)", "."),
        ("stops(Several(False, True), group=True)", "stopped+ ."),
        ("stops(Several(False, False), group=True)", "."),
    ] {
        let Some(output) = output(&format!("{nan}{program}"), &[]) else {
            return;
        };
        assert_eq!(output, expected, "{program}");
    }
}

#[test]
fn stop_on_named_ranks_uses_every_rank_source() {
    let torch = r#"
torch = types.ModuleType("torch.distributed")
torch.is_available = torch.is_initialized = lambda: True
torch.get_rank = lambda: 3
sys.modules["torch.distributed"] = torch
"#;
    let train = r#"
class Context:
    def get_world_rank(self): return 3
train = types.ModuleType("ray.train")
train.get_context = Context
sys.modules["ray.train"] = train
"#;
    let (both, each) = ("stops(ranks=3)", "stops(ranks=[0, 3])\nstops(ranks=[0])");
    for (program, env, expected) in [
        (
            format!("{both}\n{each}"),
            &[("RANK", "3")][..],
            "stopped stopped .",
        ),
        (
            format!("{both}\n{each}"),
            &[("RANK", "0")][..],
            "stopped stopped .",
        ),
        (
            format!("{torch}{both}\n{each}"),
            &[][..],
            "stopped stopped .",
        ),
        (
            format!("{train}{both}\n{each}"),
            &[][..],
            "stopped stopped .",
        ),
        // Without a known rank it stops for no rank.
        (format!("{both}\n{each}"), &[][..], "."),
        (format!("{both}\n{each}"), &[("RANK", "x")][..], "."),
    ] {
        let Some(output) = output(&program, env) else {
            return;
        };
        assert_eq!(output, expected, "{program} {env:?}");
    }
}
