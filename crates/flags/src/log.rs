//! The flags of commands that log.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// What is logged, and how.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LogFlags {
    /// Least severe messages to log.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// Format of the log on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The least severe messages to log; each level includes those before it.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Degraded service, and what may lead to failures.
    Warn,
    /// Starts, stops, reloads and other changes.
    Info,
    /// Details for troubleshooting.
    Debug,
    /// Every step.
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// Format of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// One line per message.
    Text,
    /// One JSON object per message.
    Json,
}
