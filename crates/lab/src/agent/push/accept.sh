# Runs on a host, read by sh from its standard input, after PART, COPY and SUM were set: gives a copied file its name if
# it arrived whole.
sum=$(sha256sum < "$PART")
if [ "${sum%% *}" = "$SUM" ] && chmod 500 "$PART" && mv -f "$PART" "$COPY"; then
  echo "crossway-push: accepted"
else
  rm -f "$PART"
  echo "crossway-push: refused ${sum%% *}"
fi
