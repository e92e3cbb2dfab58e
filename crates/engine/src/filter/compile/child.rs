//! Compiling in a child process: what the parent does, and what the child does.
//!
//! Module, code and errors go through three files in memory that only the two of them have: neither waits for the
//! other's reading, and how much the child can write is a limit of its own. The parent looks at them when the child
//! is gone.

use std::io::{self, Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::translate::compile;
use crate::confine::{Confinement, Reach, confine, file_in_memory};
use crate::filter::cancel::Cancel;
use crate::filter::load_error::LoadError;
use crate::filter::settings;
use crate::filter::text;

/// This program, also when its file has been replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Exit codes of a child that found something wrong with the module.
const NO_FILTER: u8 = 2;
const NO_CODE: u8 = 3;

/// Octets read of what the child wrote to standard error.
const COMPLAINT: u64 = 4096;

/// How long the parent sleeps between two looks at the child: little at first, for most are done soon.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How many times its limit of processor time may pass until a child is ended that does not get to run.
const PATIENCE: u32 = 4;

/// What Rust's allocator says when it gets nothing, and what everybody else does.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of ", "os error 12"];

/// Has a child compile a module.
pub(super) fn compile_aside(
    module: &[u8],
    confinement: Confinement,
    metered: bool,
    cancel: &Cancel,
) -> Result<Vec<u8>, LoadError> {
    let machine = LoadError::Machine;
    let mut input = file_in_memory(c"filter").map_err(machine)?;
    input
        .write_all(module)
        .and_then(|()| input.rewind())
        .map_err(machine)?;
    let mut output = file_in_memory(c"filter").map_err(machine)?;
    let mut errors = file_in_memory(c"filter").map_err(machine)?;
    let mut command = Command::new(PROGRAM);
    command
        .arg("compile-filter")
        .arg(format!("--parent={}", std::process::id()))
        .arg(format!("--memory={}", confinement.memory))
        .arg(format!("--milliseconds={}", confinement.time.as_millis()))
        .args(metered.then_some("--metered"))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output.try_clone().map_err(machine)?))
        .stderr(Stdio::from(errors.try_clone().map_err(machine)?));
    let child = Running(command.spawn().map_err(machine)?);
    let status = child.wait(confinement.time.saturating_mul(PATIENCE), cancel)?;
    if status.success() {
        let mut code = Vec::new();
        output
            .rewind()
            .and_then(|()| output.read_to_end(&mut code))
            .map_err(machine)?;
        return Ok(code);
    }
    let mut complaint = Vec::new();
    errors
        .rewind()
        .and_then(|()| errors.take(COMPLAINT).read_to_end(&mut complaint))
        .map_err(machine)?;
    Err(failure(status, &String::from_utf8_lossy(&complaint), confinement))
}

/// A child process that does not outlive the wish for what it does.
struct Running(Child);

impl Running {
    fn wait(mut self, patience: Duration, cancel: &Cancel) -> Result<ExitStatus, LoadError> {
        let begun = Instant::now();
        let mut look = FIRST_LOOK;
        loop {
            if let Some(status) = self.0.try_wait().map_err(LoadError::Machine)? {
                return Ok(status);
            }
            if cancel.is_cancelled() {
                return Err(LoadError::Cancelled);
            }
            if begun.elapsed() >= patience {
                return Err(LoadError::CompilingWaits(patience));
            }
            thread::sleep(look);
            look = (look * 2).min(LAST_LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended and been waited for is left alone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why there is no code.
fn failure(status: ExitStatus, complaint: &str, confinement: Confinement) -> LoadError {
    let said = || text::one_line(complaint.trim_end(), 1024);
    if OUT_OF_MEMORY.iter().any(|words| complaint.contains(words)) {
        return LoadError::CompilingMemory(confinement.memory);
    }
    match (status.code(), status.signal()) {
        (Some(code), _) if code == i32::from(NO_FILTER) => LoadError::Encode(said()),
        (Some(code), _) if code == i32::from(NO_CODE) => LoadError::Compile(said()),
        (_, Some(libc::SIGXCPU)) => LoadError::CompilingTime(confinement.time),
        (_, Some(libc::SIGXFSZ)) => LoadError::CompilingMemory(confinement.memory),
        (_, Some(libc::SIGKILL)) => LoadError::CompilerKilled,
        _ => LoadError::Compile(format!(
            "the process that compiles it ended with {status}: {}",
            said()
        )),
    }
}

/// Compiles the module on standard input for the process `parent`, and writes the code to standard output, or what is
/// wrong to standard error. Returns the exit code. To be called before this process does anything else.
#[expect(clippy::print_stderr, reason = "the parent reads it there")]
pub fn serve(parent: u32, confinement: Confinement, metered: bool) -> u8 {
    let done = confine(parent, confinement, Reach::Nothing)
        .map_err(LoadError::Machine)
        .and_then(|()| {
            let mut module = Vec::new();
            io::stdin().read_to_end(&mut module).map_err(LoadError::Machine)?;
            let engine =
                settings::compiler(metered).map_err(|error| LoadError::Compile(error.to_string()))?;
            let code = compile(&engine, &module)?;
            let mut output = io::stdout();
            output
                .write_all(&code)
                .and_then(|()| output.flush())
                .map_err(LoadError::Machine)
        });
    let (code, said) = match done {
        Ok(()) => return 0,
        Err(LoadError::Encode(said)) => (NO_FILTER, said),
        Err(LoadError::Compile(said)) => (NO_CODE, said),
        Err(other) => (1, other.to_string()),
    };
    eprintln!("{said}");
    code
}
