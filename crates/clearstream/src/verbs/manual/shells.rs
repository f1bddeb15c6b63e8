//! Completion scripts that offer this machine's names: from `clearstream complete`, else from clap's script.

use clap_complete::Shell;

/// The function that bash calls: this machine's names if there are any, else the generated completion. Words
/// are split at spaces only, because bash would split `vale0:a` at its colon.
const BASH: &str = r#"
_clearstream_names() {
    local line="${COMP_LINE:0:COMP_POINT}" word="${COMP_WORDS[COMP_CWORD]}" words typed names
    read -r -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    typed="${words[-1]}"
    names=$(command clearstream complete -- "${words[@]:1}" 2>/dev/null)
    if [[ -z $names ]]; then
        _clearstream "$@"
        return
    fi
    mapfile -t COMPREPLY <<<"$names"
    # What stands before the last of these is no part of the word that bash replaces.
    local break before=""
    for break in : =; do
        if [[ $typed == *$break* && $COMP_WORDBREAKS == *$break* ]]; then
            local upto="${typed%"${typed##*"$break"}"}"
            (( ${#upto} > ${#before} )) && before="$upto"
        fi
    done
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${COMPREPLY[0]} == *: ]] && compopt -o nospace
    return 0
}
"#;

/// The function for zsh, whose completion calls `_clearstream`.
const ZSH: &str = r#"
_clearstream() {
    local -a names
    names=(${(f)"$(command clearstream complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if [[ $names[1] == *: ]]; then
        # The name of a port follows the colon.
        compadd -S '' -a names
    elif (( $#names )); then
        compadd -a names
    else
        _clearstream_options "$@"
    fi
}
"#;

const FISH: &str = r#"
function __clearstream_names
    set -l words (commandline -opc) (commandline -ct)
    command clearstream complete -- $words[2..-1] 2>/dev/null
end
complete -c clearstream -n 'count (__clearstream_names) >/dev/null' -f -a '(__clearstream_names)'
"#;

/// Extends a generated script by this machine's names.
pub(super) fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            // The script's last lines register the function.
            let (body, registered) = script.rsplit_once("\nif [[").unwrap_or((script, ""));
            let registered = registered.replace("-F _clearstream ", "-F _clearstream_names ");
            format!("{body}\n{BASH}\nif [[{registered}")
        }
        Shell::Zsh => {
            let renamed = script.replacen("\n_clearstream() {", "\n_clearstream_options() {", 1);
            let (body, registered) =
                renamed.rsplit_once("\nif [ ").unwrap_or((renamed.as_str(), ""));
            format!("{body}\n{ZSH}\nif [ {registered}")
        }
        Shell::Fish => {
            // After an option fish asks that option's own completion only. Those of files say so.
            let lines = script.lines().map(|line| match line.strip_suffix(" -r") {
                Some(_) => format!("{line} -f -a '(__clearstream_names)'\n"),
                None => format!("{line}\n"),
            });
            format!("{}{FISH}", lines.collect::<String>())
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fish_offers_names_after_an_option_and_files_where_it_takes_a_file() {
        let script = "complete -c clearstream -l example -d 'A model' -r\n\
                      complete -c clearstream -l output -d 'A file' -r -F\n";
        let lines = with_names(Shell::Fish, script);
        let lines: Vec<&str> = lines.lines().take(2).collect();
        assert_eq!(
            lines,
            [
                "complete -c clearstream -l example -d 'A model' -r -f -a '(__clearstream_names)'",
                "complete -c clearstream -l output -d 'A file' -r -F",
            ]
        );
    }
}
