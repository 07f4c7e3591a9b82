#!/bin/sh
# Makes the certificates of the synthetic web again. They protect nothing: their keys are public.
#   ca.pem           the test authority, to be trusted by clients in tests
#   leaf.pem         *.weft-web.test and the first 100 host addresses (127.1.0.1 to 127.1.0.100)
#   expired.pem      the same names, ended in 2021
#   wrong-host.pem   for other.example only
#   self-signed.pem  signed by itself
# Each file but ca.pem holds key and certificate. All but expired.pem are valid from 2020 to 2076.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
start=20200101000000Z
end=20761231000000Z

names="DNS:*.weft-web.test,DNS:weft-web.test,DNS:localhost,IP:127.0.0.1"
for last in $(seq 1 100); do names="$names,IP:127.1.0.$last"; done

mkdir "$work/db"; : > "$work/db/index.txt"; echo 01 > "$work/db/serial"
cat > "$work/ca.cnf" <<CNF
[ca]
default_ca = it
[it]
dir = $work/db
database = $work/db/index.txt
serial = $work/db/serial
new_certs_dir = $work/db
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
CNF

request() { # name, subject
    openssl ecparam -name prime256v1 -genkey -noout -out "$work/$1.key"
    openssl req -new -key "$work/$1.key" -subj "/CN=$2" -out "$work/$1.csr"
}
sign() { # name, start, end, how
    name=$1 from=$2 to=$3
    shift 3
    openssl ca -batch -notext -config "$work/ca.cnf" -extfile "$work/$name.ext" -startdate "$from" -enddate "$to" "$@" \
        -in "$work/$name.csr" -out "$work/$name.crt" 2> /dev/null
}
leaf_extensions() { # name, subject alternative names
    printf '%s\n' basicConstraints=CA:FALSE keyUsage=critical,digitalSignature extendedKeyUsage=serverAuth \
        subjectKeyIdentifier=hash authorityKeyIdentifier=keyid "subjectAltName=$2" > "$work/$1.ext"
}
leaf() { # name, subject alternative names, start, end
    request "$1" "Weft test $1"
    leaf_extensions "$1" "$2"
    sign "$1" "$3" "$4" -cert ca.pem -keyfile "$work/ca.key"
    cat "$work/$1.key" "$work/$1.crt" > "$1.pem"
}

request ca "Weft test authority"
printf '%s\n' basicConstraints=critical,CA:TRUE keyUsage=critical,keyCertSign,cRLSign subjectKeyIdentifier=hash \
    > "$work/ca.ext"
sign ca $start $end -selfsign -keyfile "$work/ca.key"
cp "$work/ca.crt" ca.pem

leaf leaf "$names" $start $end
leaf expired "$names" $start 20210101000000Z
leaf wrong-host DNS:other.example $start $end

request self-signed "Weft test self-signed"
leaf_extensions self-signed "$names"
sed -i /authorityKeyIdentifier/d "$work/self-signed.ext"
sign self-signed $start $end -selfsign -keyfile "$work/self-signed.key"
cat "$work/self-signed.key" "$work/self-signed.crt" > self-signed.pem
