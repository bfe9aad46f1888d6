# Words of a text by how often they occur, most frequent first.
tr -cs 'A-Za-z' '\n' < "$1" | tr 'A-Z' 'a-z' | sed '/^$/d' | sort | uniq -c | sort -k1,1nr -k2 | sed 's/^ *//'
