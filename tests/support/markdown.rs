//! The fenced blocks of documents.

#![allow(dead_code, reason = "not every test uses all")]

/// A fenced block, with the line of its first fence.
pub struct Block {
    pub line: usize,
    pub language: String,
    pub text: String,
}

/// Returns the name of the file that a block shows: its first line is `# NAME`.
pub fn file_name(block: &str) -> Option<&str> {
    let name = block.lines().next()?.strip_prefix("# ")?;
    (name.contains('.') && !name.contains(' ')).then_some(name)
}

/// Returns the fenced blocks of a document.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        blocks.push(Block {
            line: number + 1,
            language: language.to_owned(),
            text: body.map(|line| format!("{line}\n")).collect(),
        });
    }
    blocks
}

/// Returns the fenced blocks of a language.
pub fn blocks_of(document: &str, language: &str) -> Vec<Block> {
    blocks(document).into_iter().filter(|block| block.language == language).collect()
}

/// Returns the files that a document shows, each with its name.
pub fn files(document: &str) -> Vec<(String, String)> {
    let named = |block: Block| Some((file_name(&block.text)?.to_owned(), block.text));
    blocks_of(document, "yaml").into_iter().filter_map(named).collect()
}
