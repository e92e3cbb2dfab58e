//! `view`: restricts a block to some clients.

use crate::config::Diagnostic;

use super::blocks::{Block, PluginOption};
use super::values;

/// The networks of a block's clients; if empty, all.
pub fn networks(block: &Block, mistakes: &mut Vec<Diagnostic>) -> Vec<String> {
    let views = block.plugins.iter().filter(|plugin| plugin.name.text == "view");
    let expressions = views.flat_map(|view| &view.options);
    let mut networks: Option<Vec<String>> = None;
    for expression in expressions.filter(|option| option.name.text == "expr") {
        let read = match networks {
            None => read(expression),
            // All expressions must be true, which is not supported.
            Some(_) => None,
        };
        networks = Some(read.unwrap_or_else(|| {
            let problem = "this is not a network of clients";
            let help = "one `expr` is known here: incidr(client_ip(), '192.0.2.0/24'), and several of them with || between";
            mistakes.push(Diagnostic::new(expression.span(), problem).help(help));
            Vec::new()
        }));
    }
    networks.unwrap_or_default()
}

/// `incidr(client_ip(), 'NETWORK') || …`
fn read(expression: &PluginOption) -> Option<Vec<String>> {
    let words: Vec<&str> = expression
        .arguments
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    let text: String = words.concat();
    let networks = text.split("||").map(|part| {
        let inner = part.strip_prefix("incidr(client_ip(),")?.strip_suffix(')')?;
        let quoted = ['\'', '"', '`']
            .into_iter()
            .find(|quote| inner.starts_with(*quote))?;
        let network = inner.strip_prefix(quoted)?.strip_suffix(quoted)?;
        network.contains('/').then(|| values::network(network))
    });
    networks.collect()
}
