# strip.awk: "file:line:code" of each line of C, without comments and the contents of literals.
FNR == 1 {
    in_comment = 0
}
{
    out = ""
    quote = ""
    n = length($0)
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (in_comment) {
            if (two == "*/") {
                in_comment = 0
                i++
            }
        } else if (quote != "") {
            if (c == "\\") {
                i++
            } else if (c == quote) {
                quote = ""
                out = out c
            }
        } else if (two == "/*") {
            in_comment = 1
            i++
        } else if (two == "//") {
            break
        } else {
            if (c == "\"" || c == "'") {
                quote = c
            }
            out = out c
        }
    }
    print FILENAME ":" FNR ":" out
}
