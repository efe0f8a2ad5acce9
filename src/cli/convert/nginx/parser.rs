//! The directives of nginx's configuration.

/// The deepest nesting of blocks.
const MAX_DEPTH: usize = 64;

/// A directive, and those in its block.
#[derive(Debug)]
pub(super) struct Directive {
    pub line: usize,
    pub name: String,
    pub args: Vec<String>,
    pub block: Vec<Directive>,
}

/// A word, `;`, `{` or `}`, with its line.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// Parses a configuration, or a part of one.
///
/// # Errors
///
/// The line and the error.
pub(super) fn parse(text: &str) -> Result<Vec<Directive>, (usize, String)> {
    // The last is that of the file.
    let mut open: Vec<Vec<Directive>> = vec![Vec::new()];
    let mut words: Vec<(usize, String)> = Vec::new();
    for (line, token) in tokens(text)? {
        match token {
            Token::Word(word) => words.push((line, word)),
            Token::End | Token::Open => {
                let mut given = std::mem::take(&mut words).into_iter();
                let (line, name) =
                    given.next().ok_or((line, "there is no directive before this".to_owned()))?;
                let args = given.map(|(_, word)| word).collect();
                let directive = Directive { line, name, args, block: Vec::new() };
                if let Some(block) = open.last_mut() {
                    block.push(directive);
                }
                if token == Token::Open {
                    open.push(Vec::new());
                }
                if open.len() > MAX_DEPTH {
                    return Err((line, format!("blocks are nested deeper than {MAX_DEPTH}")));
                }
            }
            Token::Close if !words.is_empty() => {
                return Err((line, "there is no `;` before this `}`".to_owned()));
            }
            Token::Close => {
                let block = open.pop().unwrap_or_default();
                let parent = open.last_mut().and_then(|block| block.last_mut());
                let Some(parent) = parent else {
                    return Err((line, "this `}` has no `{`".to_owned()));
                };
                parent.block = block;
            }
        }
    }
    match (open.len(), words.first()) {
        (1, None) => Ok(open.pop().unwrap_or_default()),
        (_, Some((line, word))) => Err((*line, format!("`{word}` has no `;` at its end"))),
        _ => Err((text.lines().count(), "a block has no `}` at its end".to_owned())),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, (usize, String)> {
    let mut tokens = Vec::new();
    let (mut line, mut chars) = (1, text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            ';' => tokens.push((line, Token::End)),
            '{' => tokens.push((line, Token::Open)),
            '}' => tokens.push((line, Token::Close)),
            '"' | '\'' => {
                let (start, mut word) = (line, String::new());
                loop {
                    let next = chars.next().ok_or((start, format!("`{c}` has no end")))?;
                    line += usize::from(next == '\n');
                    match next {
                        next if next == c => break,
                        '\\' if chars.peek() == Some(&c) => word.extend(chars.next()),
                        next => word.push(next),
                    }
                }
                tokens.push((start, Token::Word(word)));
            }
            c => {
                let mut word = String::from(c);
                let mut is_variable = c == '$';
                while let Some(next) = chars.peek().copied() {
                    // `${name}` is a variable, and `\` escapes.
                    let is_brace = next == '{' && is_variable;
                    let ends = next.is_whitespace() || next == ';' || (next == '{' && !is_brace);
                    if ends {
                        break;
                    }
                    is_variable = next == '$';
                    word.extend(chars.next());
                    if is_brace {
                        while let Some(inner) = chars.next_if(|c| *c != '}' && *c != '\n') {
                            word.push(inner);
                        }
                        word.extend(chars.next_if(|c| *c == '}'));
                    }
                    if next == '\\' {
                        word.extend(chars.next_if(|c| *c != '\n'));
                    }
                }
                tokens.push((line, Token::Word(word)));
            }
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn directives_have_their_lines() {
        let text = "# a\nhttp {\n  server_name a 'b c'; location ~ \\.php${x}$ { deny all; }\n}\n";
        let [http] = &parse(text).unwrap()[..] else { panic!() };
        let [name, location] = &http.block[..] else { panic!() };
        assert_eq!((name.line, name.args.as_slice()), (3, &["a".to_owned(), "b c".to_owned()][..]));
        assert_eq!(location.args, ["~", "\\.php${x}$"]);
        assert_eq!(location.block[0].name, "deny");
    }

    #[test]
    fn errors_have_their_lines() {
        for (text, line, wanted) in [
            ("a {\n b;\n", 2, "no `}`"),
            ("a;\n}", 2, "has no `{`"),
            ("a;\nb c", 2, "`b` has no `;`"),
            ("a {\nb }", 2, "no `;` before"),
            ("a 'x", 1, "`'` has no end"),
            (";", 1, "no directive before"),
            (&"a {\n".repeat(100), 64, "nested deeper"),
        ] {
            let (at, error) = parse(text).unwrap_err();
            assert!(at == line && error.contains(wanted), "{text}: {at}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a;{} \n'\"\\\\$#]{0,40}") {
            let _ = parse(&text);
        }
    }
}
