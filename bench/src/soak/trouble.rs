//! What a log says that it should not.

/// Lines at most that are quoted.
const LINES: usize = 5;

/// Lines that tell of an error or a panic, the first few of them.
pub(super) fn in_log(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| is_error(line)).take(LINES)
}

/// The level is a word of its own near the start of a line; a panic has no level.
fn is_error(line: &str) -> bool {
    line.split_whitespace().take(3).any(|word| word == "ERROR") || line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_talk_of_errors() {
        let log = "2026-11-30T22:00:00.000Z  INFO isthmusd::tunnel: tunnel started interface=\"isthmus0\"\n\
                   2026-11-30T22:00:01.000Z  WARN isthmusd::tunnel: send failed error=ERROR 5\n\
                   2026-11-30T22:00:02.000Z ERROR isthmusd::tunnel: a packet thread ended\n\
                   thread 'main' (1) panicked at daemon/src/main.rs:1:1:\n";
        let found: Vec<&str> = in_log(log).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("a packet thread ended") && found[1].contains("panicked"));
        assert_eq!(in_log(&"x ERROR y\n".repeat(100)).count(), LINES);
    }
}
