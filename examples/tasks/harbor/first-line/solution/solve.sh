head -n 1 /app/letter.txt > /app/first.txt
